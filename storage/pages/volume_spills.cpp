// How a volume gets its page pools, also those of spill memory that is added later.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

// One more than the number of the last slab.
std::uint32_t end_of(const SlabDirectory& slabs) {
    std::uint32_t end = slabs.slabs();
    while (end != 0 && slabs.load(end - 1).pages == 0) --end;
    return end;
}

}  // namespace

TableShape::DeviceShare Volume::share_on(const Device& device, std::uint32_t home,
                                         std::uint64_t pages, std::uint64_t page_size, bool is_kept,
                                         std::uint32_t spare_slabs) {
    const std::uint32_t slab_pages = slab_pages_for(pages, page_size, is_kept);
    return {.identity = device.info().identity,
            .pages = pages,
            .slab_pages = slab_pages,
            .slabs = slabs_for(pages, slab_pages) + spare_slabs,
            .home = home};
}

std::shared_ptr<PagePool> Volume::make_pool(Device& device, std::uint32_t index,
                                            const TableShape::DeviceShare& share,
                                            SlabBudget* budget,
                                            const std::shared_ptr<const SharedDirectory>& directory,
                                            bool is_reserve) {
    const bool is_spill = index >= layout_.devices();
    const bool is_in_table = index < shape().devices.size();
    const std::uint32_t needed = slabs_for(share.pages, share.slab_pages);
    SlabDirectory slabs = is_in_table ? table_.slabs(index) : SlabDirectory{};
    std::uint32_t used = 0;
    if (directory != nullptr && directory->in_use(index)) {
        slabs = directory->slabs(index);
        used = end_of(slabs);
    }
    const PoolConfig config{.device = index,
                            .home = share.home,
                            .page_size = page_size_,
                            .pages = share.pages,
                            .provision = is_spill ? Provision::thin : shape().provision,
                            .slab_pages = share.slab_pages,
                            .slabs = std::max({share.slabs, needed, used}),
                            .directory = slabs,
                            .shared = directory,
                            .kept_parts = is_reserve ? nullptr : kept_parts_,
                            .budget = budget,
                            .is_spill = is_spill,
                            .keeps_empty_slab = !is_spill || is_reserve,
                            .has_spare_slab = share.slabs > needed};
    return std::make_shared<PagePool>(device, config);
}

std::string Volume::set_spills(const std::vector<Spill>& spills) {
    GPUNBD_ASSERT(source_ == nullptr || spills.empty(), "pages of a source are not moved");
    if (source_ != nullptr) return {};
    const Lock serialized(pools_->cloning());
    std::vector<PagePool::Spills> of_home(layout_.devices());
    for (const Spill& spill : spills) {
        PagePool* pool = find_spill(spill);
        if (pool == nullptr) {
            auto added = add_spill(spill);
            if (auto* const why = std::get_if<std::string>(&added)) return std::move(*why);
            pool = std::get<PagePool*>(added);
        }
        of_home[spill.home].push_back(pool);
    }
    // What is not listed comes last: its budget decides whether it takes pages.
    for (std::uint32_t index = layout_.devices(); index != pools_->size(); ++index) {
        PagePool& pool = pools_->at(index);
        PagePool::Spills& spills_of = of_home[pool.memory().slabs().config().home];
        if (std::ranges::find(spills_of, &pool) == spills_of.end()) spills_of.push_back(&pool);
    }
    for (std::uint32_t home = 0; home != layout_.devices(); ++home) {
        PagePool& pool = pools_->at(home);
        if (!std::ranges::equal(pool.spills(), of_home[home])) {
            pool.set_spills(std::move(of_home[home]));
        }
    }
    return {};
}

PagePool* Volume::find_spill(const Spill& spill) const {
    for (std::uint32_t index = layout_.devices(); index != pools_->size(); ++index) {
        PagePool& pool = pools_->at(index);
        if (pool.memory().slabs().config().home == spill.home && &pool.device() == spill.device)
            return &pool;
    }
    return nullptr;
}

std::variant<PagePool*, std::string> Volume::add_spill(const Spill& spill) {
    const std::uint32_t index = pools_->size();
    const std::string& id = spill.device->info().id;
    if (pools_->is_full()) {
        return fmt::format("{} is one device too many; it has had {} since it was made", id, index);
    }
    std::shared_ptr<const SharedDirectory> directory;
    const bool is_kept = kept_parts_ != nullptr;
    if (is_kept) {
        if (std::string why = share_directory(); !why.empty()) return why;
        directory = pools_->directory();
        if (!directory->make_room()) {
            return fmt::format("the slab directory of its kept contents has no room for {}", id);
        }
        directory->set_in_use(index);
    }
    const std::uint64_t pages = shape().devices[spill.home].pages;
    const TableShape::DeviceShare share =
        share_on(*spill.device, spill.home, pages, page_size_, is_kept, 1);
    std::shared_ptr<PagePool> pool =
        make_pool(*spill.device, index, share, spill.budget, directory);
    pool->tables().add_all_of(pools_->at(spill.home).tables());
    // From here on nothing fails: a process that takes the contents over has the same pools.
    if (is_kept) directory->add(share);
    return add_pool(std::move(pool));
}

PagePool* Volume::add_pool(std::shared_ptr<PagePool> pool) {
    PagePool* const added = pool.get();
    pools_->add(std::move(pool));
    added->memory().provisioner().start();
    return added;
}

std::string Volume::add_reserve(Device& device, std::uint64_t pages) {
    const Lock serialized(pools_->cloning());
    GPUNBD_ASSERT(!shares_pages() && pools_->size() == layout_.devices(),
                  "a volume with a source has its pages for itself");
    if (pools_->is_full()) return "the volume has too many devices";
    const TableShape::DeviceShare share = share_on(device, 0, pages, page_size_, false, 0);
    auto reserve = make_pool(device, pools_->size(), share, nullptr, nullptr, true);
    reserve->tables().add(table_, pages);
    reserve_.store(add_pool(std::move(reserve)), std::memory_order_release);
    return {};
}

}  // namespace gpunbd::storage
