// How volumes share the pages of a pool.
#include <algorithm>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/devices/slab_copy.hpp"
#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t pages_at_once = 256;  // under the lock, for which clients may wait

}  // namespace

// --- the tables --------------------------------------------------------------------------------

void PagePool::add_table(const PageTable& table, std::uint64_t pages) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(std::ranges::find(tables_, &table, &Table::table) == tables_.end(),
                  "a table is added to a pool once");
    tables_.push_back({&table, pages});
    if (tables_.size() == 1) return;
    pages_ += pages;
    was_shared_ = true;
}

void PagePool::add_tables_of(const PagePool& home) {
    std::vector<Table> tables;
    {
        const Lock lock(home.mutex_);
        tables = home.tables_;
    }
    const Lock lock(mutex_);
    tables_ = std::move(tables);
    pages_ = 0;
    for (const Table& each : tables_) pages_ += each.pages;
    was_shared_ = was_shared_ || tables_.size() != 1 || pages_ != made_pages_;
}

void PagePool::remove_table(const PageTable& table, bool empty) noexcept {
    const Lock lock(mutex_);
    const auto removed = std::ranges::find(tables_, &table, &Table::table);
    if (removed == tables_.end()) return;
    const std::uint64_t pages = removed->pages;
    GPUNBD_ASSERT(pages <= pages_, "a pool promises what its tables were promised");
    tables_.erase(removed);
    if (tables_.empty() || !empty) return;
    pages_ -= pages;
    if (provision_ == Provision::full && !quiesced_) release_surplus();
}

void PagePool::move_directory(const std::shared_ptr<const SharedDirectory>& target) {
    const Lock lock(mutex_);
    slabs_.move_directory(target);
    was_shared_ = true;
}

std::shared_ptr<const SharedDirectory> PagePool::shared_directory() const {
    const Lock lock(mutex_);
    return slabs_.shared_directory();
}

void PagePool::resize(const PageTable& table, std::uint64_t pages) noexcept {
    const Lock lock(mutex_);
    const auto resized = std::ranges::find(tables_, &table, &Table::table);
    GPUNBD_ASSERT(resized != tables_.end(), "a volume is resized in pools that know its table");
    std::uint64_t& old = resized->pages;
    pages_ += pages - old;  // modulo 2^64
    const bool shrinks = pages < old;
    old = pages;
    was_shared_ = true;
    if (shrinks && provision_ == Provision::full && !quiesced_) release_surplus();
}

// Slabs that no remaining volume was promised.
void PagePool::release_surplus() {
    while (provisioning_) changed_.wait(mutex_);
    provisioning_ = true;
    while (free_.empty_slabs() != 0) {
        const std::uint32_t slab = free_.last_empty_slab();
        if (free_.reserved_pages() - free_.pages_in_slab(slab) < pages_) break;
        release_slab(slab);
    }
    provisioning_ = false;
    changed_.notify_all();
}

bool PagePool::has_other_tables(const PageTable& table) const {
    const Lock lock(mutex_);
    return std::ranges::any_of(tables_, [&](const Table& each) { return each.table != &table; });
}

bool PagePool::is_first(const PageTable& table) const {
    const Lock lock(mutex_);
    return !tables_.empty() && tables_.front().table == &table;
}

// --- a clone -----------------------------------------------------------------------------------

void PagePool::freeze() {
    const Lock lock(mutex_);
    ++frozen_;
}

void PagePool::thaw() {
    PageRequests waiters;
    {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(frozen_ != 0, "each thaw() ends a freeze()");
        if (--frozen_ != 0) return;
        waiters = std::exchange(thaw_waiters_, PageRequests{});
    }
    changed_.notify_all();
    complete(waiters, Status::ok);
}

void PagePool::wait_for_thaw() {
    while (frozen_ != 0) changed_.wait(mutex_);
}

std::uint64_t PagePool::share(const PageTable& from, const PageTable& to, std::uint64_t begin,
                              std::uint64_t end, std::vector<std::uint64_t>& written) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(frozen_ != 0, "no entry changes between the first and the last page of a clone");
    end = std::min(end, begin + pages_at_once);
    for (std::uint64_t number = begin; number != end; ++number) {
        const EntrySlot slot = from.slot(number);
        const PageEntry entry = slot.load();
        if (!entry.is_mapped()) continue;
        if (entry.device() != device_index_) return number;
        const PageIndex page = entry.page();
        GPUNBD_ASSERT(!to.slot(number).load().is_mapped(), "a clone has no page of its own yet");
        const PageEntry shared = PageEntry::shared(device_index_, page);
        sharers_[page].fetch_add(1, std::memory_order_relaxed);
        to.slot(number).store(entry.is_moving() ? entry : shared);
        if (!entry.is_writable()) continue;
        slot.store(shared);
        // See pin(). Copies of the page would lack what is written there.
        if (pins_.any_writer(page)) {
            slot.store(PageEntry::moving(device_index_, page));
            ++moving_;
            GPUNBD_ASSERT(written.size() < written.capacity(),
                          "nothing is allocated while clients wait for a clone");
            written.push_back(number);
        }
    }
    return end;
}

bool PagePool::settle(const PageTable& from, const PageTable& to, std::uint64_t number) {
    PoolLock lock(*this);
    const PageIndex page = to.slot(number).load().page();
    GPUNBD_ASSERT(to.slot(number).load().device() == device_index_,
                  "a page that a clone waits for does not move");
    if (pins_.any_writer(page)) return false;
    lock.unlock_and_complete(end_sharing(from.slot(number), page));
    return true;
}

Status PagePool::copy_written(const PageTable& from, const PageTable& to, std::uint64_t number,
                              PagePool& home) {
    const EntrySlot slot = to.slot(number);
    const PageIndex page = slot.load().page();
    TakenPage copy;
    if (const Status status = make_copy(page, home, copy); status != Status::ok) return status;
    PoolLock lock(*this);
    const bool is_needed = pins_.any_writer(page);
    if (is_needed) {
        copy.owner->mapped_pages_.fetch_add(1, std::memory_order_relaxed);
        slot.store(PageEntry::mapped(copy.owner->device_index_, copy.page));
        drop(page, RetiredPages::no_number);
    }
    lock.unlock_and_complete(end_sharing(from.slot(number), page));
    if (is_needed) {
        free_if_unpinned(page);
    } else {
        copy.owner->put_back(copy.page);
    }
    return Status::ok;
}

void PagePool::cancel_sharing(const PageTable& from, const PageTable& to, std::uint64_t number) {
    PoolLock lock(*this);
    const EntrySlot slot = to.slot(number);
    const PageIndex page = slot.load().page();
    GPUNBD_ASSERT(slot.load().device() == device_index_,
                  "a page that a clone waits for does not move");
    slot.store(PageEntry());
    drop(page, RetiredPages::no_number);
    lock.unlock_and_complete(end_sharing(from.slot(number), page));
    free_if_unpinned(page);
}

// The entry may be a hole meanwhile.
PageRequests PagePool::end_sharing(EntrySlot slot, PageIndex page) {
    if (slot.load() == PageEntry::moving(device_index_, page)) slot.store(entry_of(page));
    return end_move();
}

// --- writing to a shared page ------------------------------------------------------------------

bool PagePool::claim(EntrySlot slot, PageRef& out) {
    const Lock lock(mutex_);
    const PageEntry entry = slot.load();
    if (!entry.is_shared() || entry.device() != device_index_) return true;
    const PageIndex page = entry.page();
    if (is_shared(page)) return false;
    pin(page, Access::write);
    out = PageRef(*this, page, Access::write);
    slot.store(entry_of(page));
    return true;
}

// The provisioner of the home pool copies pages of spill memory too: if those of spill pools waited
// for memory of the home device, each could wait for a slab that the other one has to release.
Status PagePool::copy_shared(EntrySlot slot) {
    const PageEntry entry = slot.load();
    if (!entry.is_shared()) return Status::ok;
    if (entry.device() == device_index_) return copy_shared(slot, *this);
    const std::span<PagePool* const> all = spills();
    const auto spill = std::ranges::find(all, entry.device(), &PagePool::device_index_);
    GPUNBD_ASSERT(spill != all.end(), "a page is in its home pool or in one of its spills");
    return (*spill)->copy_shared(slot, *this);
}

Status PagePool::copy_shared(EntrySlot slot, PagePool& home) {
    PageRef source;
    PageEntry entry;
    SharedCopy copying;
    {
        const Lock lock(mutex_);
        entry = slot.load();
        if (!entry.is_shared() || entry.device() != device_index_) return Status::ok;
        if (!is_shared(entry.page())) return Status::ok;
        pin(entry.page(), Access::read);
        source = PageRef(*this, entry.page(), Access::read);
        copying.page = entry.page();
        shared_copies_.push_back(copying);
    }
    TakenPage copy;
    const Status status = make_copy(entry.page(), home, copy);
    {
        const Lock lock(mutex_);
        if (status == Status::ok) wait_for_thaw();
        shared_copies_.erase(shared_copies_.iterator_to(copying));
        if (status != Status::ok) return status;
        // The page may have been written in place and then been shared again.
        if (slot.load() == entry && is_shared(entry.page()) && !copying.is_old) {
            copy.owner->mapped_pages_.fetch_add(1, std::memory_order_relaxed);
            slot.store(PageEntry::mapped(copy.owner->device_index_, copy.page));
            drop(entry.page(), RetiredPages::no_number);
            return Status::ok;
        }
    }
    copy.owner->put_back(copy.page);
    return Status::ok;
}

// A fully provisioned volume has no page for each write in progress. A kept volume may be handed
// over while a page is half filled; the other half would be lost.
PageRef PagePool::take_replacement() {
    if (provision_ == Provision::full || slabs_.is_retained()) return {};
    PoolLock lock(*this);
    FreePages::Page free;
    if (!take_free_page(free)) return {};
    filling_.fetch_add(1, std::memory_order_relaxed);
    pin(free.index, Access::write);
    PageRef out(*this, free.index, Access::write);
    lock.unlock_and_wake();
    return out;
}

PagePool::Replaced PagePool::replace(EntrySlot slot, const PageRef& page) {
    PagePool& owner = *page.pool_;
    GPUNBD_ASSERT(page.access_ == Access::write, "its writer has pinned a replacement");
    GPUNBD_ASSERT(!owner.is_shared(page.page_) && !owner.retired_.contains(page.page_),
                  "a replacement has no entry before it is complete");
    PageIndex former = 0;
    {
        const Lock lock(mutex_);
        const PageEntry entry = slot.load();
        const bool is_here = entry.is_mapped() ? entry.device() == device_index_ : !is_spill_;
        if (!is_here) return Replaced::moved_to_other_pool;
        if (frozen_ != 0) return Replaced::later;
        owner.end_filling();
        owner.mapped_pages_.fetch_add(1, std::memory_order_relaxed);
        slot.store(PageEntry::mapped(owner.device_index_, page.page_));
        if (!entry.is_mapped()) return Replaced::done;
        former = entry.page();
        drop(former, RetiredPages::no_number);
    }
    free_if_unpinned(former);
    return Replaced::done;
}

void PagePool::give_up(PageRef page) {
    GPUNBD_ASSERT(!page.hole(), "a replacement is given up once");
    PagePool& owner = *page.pool_;
    const Lock lock(owner.mutex_);
    owner.end_filling();
    owner.retired_.add(page.page_, RetiredPages::no_number);
}

Status PagePool::make_copy(PageIndex page, PagePool& home, TakenPage& out) {
    Status status = home.take_in_order(out, Purpose::copy);
    if (status != Status::ok) return status;
    status = copy_contents(page, out);
    if (status != Status::ok) out.owner->put_back(out.page);
    return status;
}

Status PagePool::copy_contents(PageIndex page, const TakenPage& to) noexcept {
    GPUNBD_ASSERT(to.owner != this || to.page != page, "a page is copied to another one");
    const Slab& from = slabs_.slab_of(page);
    const Slab& target = to.owner->slabs_.slab_of(to.page);
    const std::uint64_t from_offset = slabs_.offset_in_slab(page);
    const std::uint64_t offset = to.owner->slabs_.offset_in_slab(to.page);
    if (to.owner->device_.failed() || !device_.readable()) return Status::io_error;
    try {
        if (&device_ == &to.owner->device_) {
            return device_.copy(from, from_offset, target, offset, page_size_);
        }
        return copy_through_channels(
            {.device = device_, .slab = from, .offset = from_offset},
            {.device = to.owner->device_, .slab = target, .offset = offset}, page_size_);
    } catch (const std::exception&) {  // no memory for a channel or for an error message
        return Status::io_error;
    }
}

}  // namespace gpunbd::storage
