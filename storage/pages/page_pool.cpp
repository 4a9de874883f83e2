#include "storage/pages/page_pool.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_completions.hpp"

namespace gpunbd::storage {

PagePool::PagePool(Device& device, const PoolConfig& config)
    : index_(config.device),
      memory_(device, config, service_),
      tables_(memory_),
      take_over_(memory_) {}

PagePool::~PagePool() {
    memory_.provisioner().stop();
    GPUNBD_ASSERT(move_waiters_.empty() && thaw_waiters_.empty(),
                  "the requests for pages are answered before a pool ends");
    GPUNBD_ASSERT(moving_ == 0 && frozen_ == 0, "moves and clones end before the pool");
}

// A move that ends makes a page free.
void PagePool::quiesce() {
    memory_.quiesce();
    {
        const Lock lock(memory_.mutex());
        while (moving_ != 0) changed_.wait(memory_.mutex());
    }
    memory_.quiesce();
}

void PagePool::set_spills(Spills spills) {
    const Lock lock(memory_.mutex());
    spill_lists_.push_back(std::make_unique<const Spills>(std::move(spills)));
    const Spills* const current = spill_lists_.back().get();
    // Pages that move need a spare slab.
    if (!current->empty() && !memory_.slabs().config().has_spare_slab) memory_.use_whole_slabs();
    spills_.store(current, std::memory_order_release);
}

Status PagePool::Service::serve(PageRequest& request) {
    if (request.copies) return pool_.copy_shared(request.slot);
    PageRef page;
    return pool_.map(request.number, request.slot, page);
}

// --- mapping ---------------------------------------------------------------------------------

bool PagePool::map_at_once(std::uint64_t number, EntrySlot slot, PageRef& out) {
    PageAllocator::PoolLock lock(memory_);
    const PageEntry entry = slot.load();
    if (entry.is_mapped()) {
        if (entry == entry_of(memory_, entry.page())) {
            out = pinned(memory_, entry.page(), Access::write);
        }
        return true;
    }
    // A retired page of this number has to be cleared and reused: with another, it would have two.
    if (is_retired_from(entry, number) || frozen_ != 0) return false;
    const std::optional<PageIndex> page = memory_.take_now(PageAllocator::Purpose::zeroes);
    if (!page) return false;
    publish(slot, memory_, *page, out);
    lock.unlock_and_wake();
    memory_.slabs().populate(*page);
    return true;
}

Status PagePool::map(std::uint64_t number, EntrySlot slot, PageRef& out) {
    const Lock serialized(mapping_mutex_);
    while (!map_at_once(number, slot, out)) {
        PageIndex page = 0;
        if (pin_retired(number, slot, page)) return map_retired(slot, page, out);
        TakenPage taken;
        if (const Status status = take_in_order(taken, PageAllocator::Purpose::zeroes);
            status != Status::ok) {
            const Lock lock(memory_.mutex());
            if (!has_page(slot, number)) return status;
        } else if (map_taken(number, slot, taken, out)) {
            return Status::ok;
        }
        // map_at_once() of another thread has mapped a page meanwhile.
    }
    return Status::ok;
}

bool PagePool::pin_retired(std::uint64_t number, EntrySlot slot, PageIndex& page) {
    const Lock lock(memory_.mutex());
    const PageEntry entry = slot.load();
    if (!is_retired_from(entry, number)) return false;
    page = entry.page();
    memory_.pin(page, Access::read);  // the page stays retired
    return true;
}

Status PagePool::map_retired(EntrySlot slot, PageIndex page, PageRef& out) {
    const PageRef pinned(memory_, page, Access::read);
    // Other holders of the page see its contents change, as by any write.
    if (const Status status = memory_.slabs().clear(page); status != Status::ok) return status;
    const Lock lock(memory_.mutex());
    wait_for_thaw();
    // replace() may have mapped another page meanwhile.
    if (slot.load() != PageEntry::retired(index_, page)) return Status::ok;
    memory_.pages().retired().remove(page);
    publish(slot, memory_, page, out);
    return Status::ok;
}

// False: another page was mapped meanwhile, and this one is free again.
bool PagePool::map_taken(std::uint64_t number, EntrySlot slot, const TakenPage& taken,
                         PageRef& out) {
    {
        const Lock lock(memory_.mutex());
        wait_for_thaw();
        if (!has_page(slot, number)) {
            publish(slot, *taken.owner, taken.page, out);
            return true;
        }
    }
    taken.owner->put_back(taken.page);
    return false;
}

void PagePool::publish(EntrySlot slot, PageAllocator& owner, PageIndex page, PageRef& out) {
    GPUNBD_ASSERT(!slot.load().is_mapped(), "a page number has one page");
    out = pinned(owner, page, Access::write);
    owner.pages().add_first_entry(page);
    slot.become(entry_of(owner, page));
}

// After a failure, returns that of the first device.
Status PagePool::take_in_order(TakenPage& out, PageAllocator::Purpose purpose) {
    std::optional<Status> failure;
    const auto take_from = [&](PagePool* pool) {
        if (pool->device().failed()) return false;
        const Status status = pool->memory_.take(out.page, purpose);
        if (status != Status::ok && !failure) failure = status;
        out.owner = &pool->memory_;
        return status == Status::ok;
    };
    if (take_from(this) || std::ranges::any_of(spills(), take_from)) return Status::ok;
    if (failure) return *failure;
    out.owner = &memory_;  // all have failed, so its copies will fail
    return memory_.take(out.page, purpose);
}

// Whether the page that was mapped there is still pinned and not used elsewhere.
bool PagePool::is_retired_from(PageEntry entry, std::uint64_t number) const {
    return entry.state() == PageEntry::State::retired &&
           memory_.pages().retired().contains(entry.page(), number);
}

bool PagePool::has_page(EntrySlot slot, std::uint64_t number) const {
    const PageEntry entry = slot.load();
    return entry.is_mapped() || is_retired_from(entry, number);
}

PagePool::Replaced PagePool::unmap(std::uint64_t number, EntrySlot slot, PageRequest* request) {
    PageIndex page = 0;
    {
        // Under the lock, so that take() always finds a page mapped, retired, pending or free.
        const Lock lock(memory_.mutex());
        if (frozen_ != 0 && request != nullptr) {
            thaw_waiters_.push(*request);
            return Replaced::later;
        }
        wait_for_thaw();
        const PageEntry entry = slot.load();
        if (!entry.is_mapped()) return Replaced::done;
        if (!is_here(entry)) return Replaced::moved_to_other_pool;
        page = entry.page();
        // The next page of this number is not mapped in a spill pool if there is memory elsewhere.
        // If there are several tables, a later page of this pool may have the same number in
        // another one. A page that moves does not return either: commit_move() could not tell that
        // its contents are new.
        const bool returns =
            !memory_.slabs().config().is_spill && tables_.count() < 2 && !entry.is_moving();
        slot.become(returns ? PageEntry::retired(index_, page) : PageEntry());
        drop(page, returns ? number : RetiredPages::no_number);
    }
    memory_.free_if_unpinned(page);
    return Replaced::done;
}

void PagePool::drop(PageIndex page, std::uint64_t number) {
    if (memory_.pages().remove_entry(page)) memory_.retire(page, number);
}

void PagePool::wait_for_thaw() {
    while (frozen_ != 0) changed_.wait(memory_.mutex());
}

bool PagePool::begin_move(std::uint64_t number, EntrySlot slot, PageRef& out) {
    const Lock lock(memory_.mutex());
    const PageEntry entry = slot.load();
    if (memory_.is_quiesced() || !entry.is_mapped() || entry.is_moving()) return false;
    if (!is_here(entry)) return false;
    const PageIndex page = entry.page();
    GPUNBD_ASSERT(!memory_.pages().retired().contains(page),
                  "a page that has an entry is not retired");
    tables_.for_each_slot(number, [&](EntrySlot each) {
        if (each.load().has_page_of(entry)) each.become(PageEntry::moving(index_, page));
    });
    // Not before: see PageStates::pin().
    if (memory_.pages().is_pinned_for_writing(page)) {
        store_moving(number, page, entry);
        return false;
    }
    ++moving_;
    out = pinned(memory_, page, Access::read);
    return true;
}

bool PagePool::commit_move(std::uint64_t number, PageIndex from, PagePool& target, PageIndex page) {
    PageAllocator::PoolLock lock(memory_);
    GPUNBD_ASSERT(&target != this || page != from, "a page moves to another one");
    GPUNBD_ASSERT(target.memory_.slabs().config().home == memory_.slabs().config().home,
                  "a page moves between the pools of one part of a layout");
    PageStates& pages = memory_.pages();
    PageStates& target_pages = target.memory_.pages();
    const std::uint32_t sharers = pages.sharers(from);
    target_pages.add_first_entry(page, sharers, pages.missing(from));
    const bool is_moving = store_moving(number, from,
                                        sharers != 0 ? PageEntry::shared(target.index_, page)
                                                     : PageEntry::mapped(target.index_, page));
    if (is_moving) {
        pages.remove_all_entries(from);
        memory_.retire(from, RetiredPages::no_number);  // pinned by the caller
        target_pages.end_filling();
    } else {
        target_pages.remove_all_entries(page);
    }
    lock.unlock_and_complete(end_move());
    return is_moving;
}

void PagePool::cancel_move(std::uint64_t number, PageIndex from) {
    PageAllocator::PoolLock lock(memory_);
    // A clone may have the page alone now, while the page is sent to a client of its source.
    store_moving(number, from,
                 memory_.pages().is_pinned_for_sending(from) ? PageEntry::shared(index_, from)
                                                             : entry_at_rest(from));
    lock.unlock_and_complete(end_move());
}

// False: the page is not moving any more.
bool PagePool::store_moving(std::uint64_t number, PageIndex page, PageEntry entry) {
    const PageEntry moving = PageEntry::moving(index_, page);
    bool any = false;
    tables_.for_each_slot(number, [&](EntrySlot each) {
        if (each.load() != moving) return;
        each.become(entry);
        any = true;
    });
    return any;
}

// The entry of a mapped page that is not moving.
PageEntry PagePool::entry_at_rest(PageIndex page) {
    if (memory_.pages().is_shared(page)) return PageEntry::shared(index_, page);
    memory_.pages().claim(page);
    return PageEntry::mapped(index_, page);
}

bool PagePool::moves_from_here(PageEntry entry) const {
    return entry.is_moving() && is_here(entry);
}

PageRequests PagePool::end_move() {
    GPUNBD_ASSERT(moving_ != 0, "a move ends once");
    --moving_;
    changed_.notify_all();
    PageRequests waiters;
    PageRequests others;
    while (PageRequest* const request = move_waiters_.pop()) {
        (moves_from_here(request->slot.load()) ? others : waiters).push(*request);
    }
    move_waiters_ = others;
    return waiters;
}

bool PagePool::wait_for_move(EntrySlot slot, PageRequest& request) {
    const Lock lock(memory_.mutex());
    GPUNBD_ASSERT(request.in_progress, "a worker knows of its request before it waits for a move");
    if (!moves_from_here(slot.load())) return false;
    request.slot = slot;
    move_waiters_.push(request);
    return true;
}

}  // namespace gpunbd::storage
