#include "storage/pages/pool_take_over.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "storage/assertions/assert.hpp"
#include "storage/base/long_work.hpp"

namespace gpunbd::storage {

std::string PoolTakeOver::take_over(Descriptors& descriptors, const EntryCounts& entries,
                                    ImportedSlabs* imported) {
    const PoolSlabs& slabs = memory_.slabs();
    const std::uint64_t page_size = slabs.config().page_size;
    LongWork work("taking over", slabs.device().info().id, slabs.page_numbers() * page_size,
                  "bytes");
    const Lock lock(memory_.mutex());
    GPUNBD_ASSERT(memory_.free_.reserved_pages() == 0,
                  "a pool takes over slabs before it makes any");
    GPUNBD_ASSERT(entries.size() <= slabs.page_numbers(), "each page that is counted has a number");
    taken_over_.reserve(slabs.count());  // abandon() has to know each slab
    for (std::uint32_t number = 0; number != slabs.count(); ++number) {
        const SlabEntry entry = slabs.directory().entry(number);
        if (entry.pages == 0) continue;
        work.set_done(std::uint64_t{number} * slabs.numbers().slab_pages() * page_size);
        std::string reason = take_over_slab(number, entry, descriptors, imported);
        if (!reason.empty()) return reason;
    }
    for (PageIndex page = 0; page != entries.size(); ++page) {
        if (entries[page] != 0 && !has_slab_of(page)) {
            return fmt::format("page {} is used, and its slab is missing", page);
        }
    }
    return {};
}

std::string PoolTakeOver::take_over_slab(std::uint32_t number, SlabEntry entry,
                                         Descriptors& descriptors, ImportedSlabs* imported) {
    const PoolConfig& config = memory_.config();
    // All slabs have the same number of pages, except for one that has the remainder.
    const std::uint32_t whole = config.slab_pages;
    const std::uint64_t reserved = memory_.free_.reserved_pages();
    const bool is_last = entry.pages == config.pages % whole && reserved % whole == 0;
    const bool is_too_much =
        !memory_.promise_.in_whole_slabs && reserved + entry.pages > config.max_reserved();
    if ((entry.pages != whole && !is_last) || is_too_much) {
        return fmt::format("slab {} has an invalid number of pages: {}", number, entry.pages);
    }
    const auto descriptor = descriptors.find(number);
    if (descriptor == descriptors.end()) return fmt::format("slab {} is missing", number);
    if (!memory_.slabs_.take_over(number, entry, descriptor->second, imported)) {
        return fmt::format("slab {} cannot be taken over", number);
    }
    taken_over_.push_back(number);
    if (memory_.slabs_.at(number).cpu == nullptr) unmapped_.push_back(number);
    descriptors.erase(descriptor);
    memory_.free_.reserve_slab(number, entry.pages);
    return {};
}

bool PoolTakeOver::has_slab_of(PageIndex page) const {
    const PoolSlabs& slabs = memory_.slabs();
    return slabs.numbers().index_in_slab(page) <
           memory_.free_.pages_in_slab(slabs.numbers().slab_of(page));
}

// A page that is not mapped is discarded: it may contain part of an unfinished write.
void PoolTakeOver::commit(const EntryCounts& entries) noexcept {
    PageAllocator::PoolLock lock(memory_);
    taken_over_.clear();
    for (PageIndex page = 0; page != entries.size(); ++page) {
        if (!has_slab_of(page)) continue;
        if (memory_.free_.is_free(page)) continue;  // fill() has made its slab since
        GPUNBD_ASSERT(!memory_.pages().retired().contains(page),
                      "no process keeps the retired pages of another");
        if (entries[page] != 0) {
            memory_.pages().add_first_entry(page, entries[page] - 1);
            continue;
        }
        ++memory_.pending_;
        bool is_clear = false;
        {
            const Unlock unlock(memory_.mutex());
            is_clear = memory_.slabs_.discard(page);
        }
        memory_.add_free({page, is_clear});
    }
    lock.unlock_and_wake();
}

void PoolTakeOver::abandon() noexcept {
    memory_.provisioner().stop();
    for (std::uint32_t number = 0; number != memory_.slabs_.count(); ++number) {
        if (!memory_.slabs_.at(number).is_allocated()) continue;
        memory_.slabs_.abandon(number, std::ranges::binary_search(taken_over_, number));
    }
}

bool PoolTakeOver::finished() const {
    const Lock lock(memory_.mutex());
    return unmapped_.empty();
}

void PoolTakeOver::finish() noexcept {
    {
        const Lock lock(memory_.mutex());
        mapping_allowed_ = true;
    }
    memory_.provisioner().wake();  // without a thread, the slabs are used through channels
}

std::vector<PoolSlabs::Copy> PoolTakeOver::copy_slabs() const {
    const Lock lock(memory_.mutex());
    return memory_.slabs().copy();
}

Slab* PoolTakeOver::next_unmapped_slab() {
    memory_.mutex().assert_held();
    while (mapping_allowed_ && !unmapped_.empty()) {
        Slab& slab = memory_.slabs_.at(unmapped_.back());
        unmapped_.pop_back();
        // The slab may have been released since, and its number reused.
        if (slab.bytes != 0 && slab.cpu == nullptr) return &slab;
    }
    return nullptr;
}

}  // namespace gpunbd::storage
