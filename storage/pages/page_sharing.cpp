// How the tables of a volume and of its clone come to share pages.
#include <algorithm>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t pages_at_once = 256;  // under the lock, for which clients may wait

void append(std::vector<std::uint64_t>& numbers, std::uint64_t number) {
    GPUNBD_ASSERT(numbers.size() < numbers.capacity(),
                  "nothing is allocated while clients wait for a clone");
    numbers.push_back(number);
}

}  // namespace

void PagePool::freeze() {
    const Lock lock(memory_.mutex());
    ++frozen_;
}

void PagePool::thaw() {
    PageRequests waiters;
    {
        const Lock lock(memory_.mutex());
        GPUNBD_ASSERT(frozen_ != 0, "each thaw() ends a freeze()");
        if (--frozen_ != 0) return;
        waiters = std::exchange(thaw_waiters_, PageRequests{});
    }
    changed_.notify_all();
    complete(waiters, Status::ok);
}

std::uint64_t PagePool::share(const PageTable& from, const PageTable& to, std::uint64_t begin,
                              std::uint64_t end, InUse& in_use) {
    const Lock lock(memory_.mutex());
    GPUNBD_ASSERT(frozen_ != 0, "no entry changes between the first and the last page of a clone");
    end = std::min(end, begin + pages_at_once);
    for (std::uint64_t number = begin; number != end; ++number) {
        const EntrySlot slot = from.slot(number);
        const PageEntry entry = slot.load();
        if (!entry.is_mapped()) continue;
        if (!is_here(entry)) return number;
        const PageIndex page = entry.page();
        GPUNBD_ASSERT(!to.slot(number).load().is_mapped(), "a clone has no page of its own yet");
        const PageEntry shared = PageEntry::shared(index_, page);
        memory_.pages().add_entry(page);
        to.slot(number).become(entry.is_moving() ? entry : shared);
        if (entry.is_writable()) slot.become(shared);
        // Not before: see PageStates::pin(). From now on, clients are sent copies of the page.
        if (memory_.pages().is_pinned_for_sending(page)) append(in_use.sent, number);
        // Copies of the page would lack what is written there.
        if (entry.is_writable() && memory_.pages().is_pinned_for_writing(page)) {
            slot.become(PageEntry::moving(index_, page));
            ++moving_;
            append(in_use.written, number);
        }
    }
    return end;
}

bool PagePool::may_be_sent(EntrySlot slot) const {
    const PageEntry entry = slot.load();
    const bool is_of_source = entry.is_shared() || entry.is_moving();
    return is_of_source && is_here(entry) && memory_.pages().is_pinned_for_sending(entry.page());
}

bool PagePool::settle(const PageTable& from, const PageTable& to, std::uint64_t number) {
    PageAllocator::PoolLock lock(memory_);
    const PageIndex page = to.slot(number).load().page();
    GPUNBD_ASSERT(to.slot(number).load().device() == index_,
                  "a page that a clone waits for does not move");
    if (memory_.pages().is_pinned_for_writing(page)) return false;
    lock.unlock_and_complete(end_sharing(from.slot(number), page));
    return true;
}

Status PagePool::copy_written(const PageTable& from, const PageTable& to, std::uint64_t number,
                              PagePool& home) {
    const EntrySlot slot = to.slot(number);
    const PageIndex page = slot.load().page();
    TakenPage copy;
    if (const Status status = make_copy(page, home, copy); status != Status::ok) return status;
    PageAllocator::PoolLock lock(memory_);
    const bool is_needed = memory_.pages().is_pinned_for_writing(page);
    if (is_needed) {
        publish_copy(slot, page, copy);
    }
    lock.unlock_and_complete(end_sharing(from.slot(number), page));
    if (is_needed) {
        memory_.free_if_unpinned(page);
    } else {
        copy.owner->put_back(copy.page);
    }
    return Status::ok;
}

void PagePool::cancel_sharing(const PageTable& from, const PageTable& to, std::uint64_t number) {
    PageAllocator::PoolLock lock(memory_);
    const EntrySlot slot = to.slot(number);
    const PageIndex page = slot.load().page();
    GPUNBD_ASSERT(slot.load().device() == index_, "a page that a clone waits for does not move");
    slot.become(PageEntry());
    drop(page, RetiredPages::no_number);
    lock.unlock_and_complete(end_sharing(from.slot(number), page));
    memory_.free_if_unpinned(page);
}

Status PagePool::copy_sent(EntrySlot slot, PagePool& home) {
    {
        const Lock lock(memory_.mutex());
        while (moves_from_here(slot.load())) changed_.wait(memory_.mutex());
    }
    return copy(slot, home, Copied::any);
}

// The entry may be a hole meanwhile.
PageRequests PagePool::end_sharing(EntrySlot slot, PageIndex page) {
    if (slot.load() == PageEntry::moving(index_, page)) slot.become(entry_at_rest(page));
    return end_move();
}

}  // namespace gpunbd::storage
