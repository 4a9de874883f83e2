#include "storage/migration/full_provision.hpp"

#include <algorithm>

namespace gpunbd::storage {

namespace {

std::uint64_t difference(std::uint64_t from, std::uint64_t subtracted) {
    return from - std::min(from, subtracted);
}

}  // namespace

FullProvision::FullProvision(const std::vector<std::shared_ptr<Volume>>& volumes,
                             const Device& device) {
    std::vector<const SlabBudget*> counted;
    for (const std::shared_ptr<Volume>& volume : volumes) {
        if (volume->shape().provision != Provision::full) continue;
        for (std::uint32_t index = 0; index != volume->layout_devices(); ++index) {
            const PagePool& pool = volume->pool(index);
            if (&pool.device() != &device) continue;
            if (std::ranges::find(shares_, &pool, &Share::pool) != shares_.end()) continue;
            const PageAllocator::Usage usage = pool.memory().usage();
            Share share{.pool = &pool, .promised = usage.promised, .present = usage.allocated};
            for (const PagePool* const spill : pool.spills()) {
                share.present += spill->memory().usage().allocated;
                const SlabBudget& budget = spill->memory().slabs().budget();
                if (std::ranges::find(counted, &budget) != counted.end()) continue;
                counted.push_back(&budget);
                room_ += std::min(difference(budget.limit(), budget.used()),
                                  spill->device().available());
            }
            shares_.push_back(share);
        }
    }
}

bool FullProvision::may_leave(const PagePool& pool, std::uint64_t bytes) const {
    std::uint64_t missing = 0;
    bool is_promised = false;
    for (const Share& share : shares_) {
        const bool loses = share.pool == &pool;
        is_promised = is_promised || loses;
        missing += difference(share.promised, difference(share.present, loses ? bytes : 0));
    }
    return !is_promised || missing <= room_;
}

void FullProvision::leave(const PagePool& pool, std::uint64_t bytes) {
    for (Share& share : shares_) {
        if (share.pool == &pool) share.present = difference(share.present, bytes);
    }
}

}  // namespace gpunbd::storage
