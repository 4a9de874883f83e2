// How a page moves to another pool.
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage {

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
    target_pages.add_first_entry(page, sharers);
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
