// How a table gets a page of its own, instead of one that it shares with other tables.
#include <algorithm>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage {

bool PagePool::claim(EntrySlot slot, PageRef& out) {
    const Lock lock(memory_.mutex());
    const PageEntry entry = slot.load();
    if (!entry.is_shared() || !is_here(entry)) return true;
    const PageIndex page = entry.page();
    if (memory_.pages().is_shared(page)) return false;
    out = pinned(memory_, page, Access::write);
    slot.become(entry_at_rest(page));
    return true;
}

// The provisioner of the home pool copies pages of spill memory too: if those of spill pools waited
// for memory of the home device, each could wait for a slab that the other one has to release.
Status PagePool::copy_shared(EntrySlot slot) {
    const PageEntry entry = slot.load();
    if (!entry.is_shared()) return Status::ok;
    if (is_here(entry)) return copy(slot, *this, Copied::of_several_tables);
    const std::span<PagePool* const> all = spills();
    const auto spill = std::ranges::find(all, entry.device(), &PagePool::index_);
    GPUNBD_ASSERT(spill != all.end(), "a page is in its home pool or in one of its spills");
    return (*spill)->copy(slot, *this, Copied::of_several_tables);
}

bool PagePool::shares_spilled_pages() const {
    const Lock lock(memory_.mutex());
    return !spills().empty() && tables_.count() > 1;
}

void PagePool::open_copy_channels() {
    copier_.open(device());
    for (PagePool* const spill : spills()) copier_.open(spill->device());
}

Status PagePool::copy(EntrySlot slot, PagePool& home, Copied which) {
    PageRef source;
    PageEntry entry;
    const auto is_wanted = [&] {
        return which == Copied::any || memory_.pages().is_shared(entry.page());
    };
    {
        const Lock lock(memory_.mutex());
        entry = slot.load();
        if (!entry.is_shared() || !is_here(entry) || !is_wanted()) return Status::ok;
        source = pinned(memory_, entry.page(), Access::read);
    }
    TakenPage copied;
    const Status status = make_copy(entry.page(), home, copied);
    if (status != Status::ok) return status;
    {
        const Lock lock(memory_.mutex());
        wait_for_thaw();
        // The page may have been written in place and then been shared again.
        if (slot.load() == entry && is_wanted() && source.is_intact()) {
            publish_copy(slot, entry.page(), copied);
            return Status::ok;
        }
    }
    copied.owner->put_back(copied.page);
    return Status::ok;
}

// A fully provisioned volume has no page for each write in progress. A kept volume may be handed
// over while a page is half filled; the other half would be lost.
PageRef PagePool::take_replacement() {
    const PoolConfig& config = memory_.slabs().config();
    if (config.provision == Provision::full || config.is_kept()) return {};
    PageAllocator::PoolLock lock(memory_);
    const std::optional<PageIndex> page = memory_.take_now(PageAllocator::Purpose::fill);
    if (!page) return {};
    PageRef out = pinned(memory_, *page, Access::write);
    lock.unlock_and_wake();
    return out;
}

Status PagePool::take_page(PageRef& out) {
    PageIndex page = 0;
    const Status status = memory_.take(page, PageAllocator::Purpose::fill);
    if (status == Status::ok) out = pinned(memory_, page, Access::write);
    return status;
}

PagePool::Replaced PagePool::replace(EntrySlot slot, const PageRef& page) {
    GPUNBD_ASSERT(page.access() == Access::write, "its writer has pinned a replacement");
    PageAllocator& owner = page.owner();
    PageIndex former = 0;
    {
        const Lock lock(memory_.mutex());
        const PageEntry entry = slot.load();
        const bool is_ours =
            entry.is_mapped() ? is_here(entry) : !memory_.slabs().config().is_spill;
        if (!is_ours) return Replaced::moved_to_other_pool;
        if (frozen_ != 0) return Replaced::later;
        owner.pages().end_filling();
        owner.pages().add_first_entry(page.index());
        slot.become(entry_of(owner, page.index()));
        if (!entry.is_mapped()) return Replaced::done;
        former = entry.page();
        drop(former, RetiredPages::no_number);
    }
    memory_.free_if_unpinned(former);
    return Replaced::done;
}

bool PagePool::fill_hole(EntrySlot slot, const PageRef& page, Parts missing) {
    PageAllocator& owner = page.owner();
    const Lock lock(memory_.mutex());
    if (slot.load().is_mapped()) return false;
    owner.pages().end_filling();
    owner.pages().add_first_entry(page.index(), 0, missing);
    slot.become(entry_of(owner, page.index()));
    return true;
}

void PagePool::give_up(PageRef page) {
    GPUNBD_ASSERT(!page.hole(), "a replacement is given up once");
    PageAllocator& owner = page.owner();
    const Lock lock(owner.mutex());
    owner.pages().end_filling();
    owner.retire(page.index(), RetiredPages::no_number);
}

void PagePool::publish_copy(EntrySlot slot, PageIndex page, const TakenPage& copy) {
    copy.owner->pages().add_first_entry(copy.page);
    slot.become(entry_of(*copy.owner, copy.page));
    drop(page, RetiredPages::no_number);
}

Status PagePool::make_copy(PageIndex page, PagePool& home, TakenPage& out) {
    Status status = home.take_in_order(out, PageAllocator::Purpose::copy);
    if (status != Status::ok) return status;
    status = copy_contents(page, out, home.copier_);
    if (status != Status::ok) out.owner->put_back(out.page);
    return status;
}

Status PagePool::copy_contents(PageIndex page, const TakenPage& to, SlabCopier& copier) noexcept {
    GPUNBD_ASSERT(to.owner != &memory_ || to.page != page, "a page is copied to another one");
    const PoolSlabs& slabs = memory_.slabs();
    const PoolSlabs& target_slabs = to.owner->slabs();
    const Slab& from = slabs.slab_of(page);
    const Slab& target = target_slabs.slab_of(to.page);
    const std::uint64_t from_offset = slabs.numbers().offset_in_slab(page);
    const std::uint64_t offset = target_slabs.numbers().offset_in_slab(to.page);
    const std::uint64_t length = slabs.config().page_size;
    Device& device = slabs.device();
    Device& target_device = target_slabs.device();
    if (target_device.failed() || !device.readable()) return Status::io_error;
    try {
        if (&device == &target_device) {
            return device.copy(from, from_offset, target, offset, length);
        }
        return copier.copy({.device = device, .slab = from, .offset = from_offset},
                           {.device = target_device, .slab = target, .offset = offset}, length);
    } catch (const std::exception&) {  // no memory for a channel or for an error message
        return Status::io_error;
    }
}

}  // namespace gpunbd::storage
