#include "storage/pages/page_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/long_work.hpp"
#include "storage/devices/page_completions.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t bytes_per_pin_byte = 4096;  // of the export, for each byte of pin counts
constexpr std::uint64_t preferred_slab = 64 << 20;  // bytes: fits fragmented memory
constexpr std::uint32_t smallest_slab_part = 8;     // of a slab that the device has no memory for
constexpr std::uint64_t retained_slabs = 64;        // of a volume, about: each has a descriptor
constexpr std::uint64_t largest_retained_slab = 1 << 30;  // bytes

}  // namespace

std::uint32_t PagePool::slab_pages_for(std::uint64_t pages, std::uint64_t page_size,
                                       bool retained) {
    const std::uint64_t wanted = std::max<std::uint64_t>(pages, 1);
    std::uint64_t bytes = preferred_slab;
    if (retained) {
        bytes = std::clamp(std::bit_ceil(wanted * page_size / retained_slabs), preferred_slab,
                           largest_retained_slab);
    }
    return static_cast<std::uint32_t>(
        std::min(std::max<std::uint64_t>(bytes / page_size, 1), std::bit_ceil(wanted)));
}

PagePool::PagePool(Device& device, const Config& config)
    : device_(device),
      device_index_(config.device),
      home_(config.home),
      page_size_(config.page_size),
      made_pages_(config.pages),
      max_reserved_(config.pages + (config.has_spare_slab ? config.slab_pages : 0)),
      provision_(config.provision),
      is_spill_(config.is_spill),
      spare_slabs_(config.is_spill ? 0 : 1),
      ahead_(device.slow_to_allocate() || config.retainer != nullptr),
      slabs_(device, config),
      pins_(page_numbers(), config.pages * page_size_ / bytes_per_pin_byte),
      retired_(page_numbers()),
      sharers_(page_numbers()),
      free_(slabs_.count(), config.slab_pages),
      pages_(config.pages),
      was_shared_(slabs_.uses_shared_directory()),
      provisioner_([this] { provision(); }) {}

PagePool::~PagePool() {
    provisioner_.stop();
    GPUNBD_ASSERT(requests_.empty() && move_waiters_.empty() && thaw_waiters_.empty(),
                  "the requests for pages are answered before a pool ends");
    GPUNBD_ASSERT(moving_ == 0 && pending_ == 0 && frozen_ == 0,
                  "moves, releases and clones end before the pool");
    GPUNBD_ASSERT(retired_.count() == 0, "the last pin of a retired page ends before its pool");
    slabs_.release_all();
    for (; announced_ != 0; --announced_) device_.releases().end();
}

Status PagePool::fill(const std::stop_token& stop) {
    const Lock lock(mutex_);
    LongWork work("provisioning", device_.info().id, pages_ * page_size_, "bytes");
    while (free_.reserved_pages() < pages_) {
        work.set_done(free_.reserved_pages() * page_size_);
        if (stop.stop_requested()) return Status::no_space;
        if (const Status status = add_slab(); status != Status::ok) return status;
    }
    return Status::ok;
}

void PagePool::set_spills(Spills spills) {
    const Lock lock(mutex_);
    spill_lists_.push_back(std::make_unique<const Spills>(std::move(spills)));
    const Spills* const current = spill_lists_.back().get();
    // Pages that move need a spare slab.
    if (!current->empty() && max_reserved_ == made_pages_) was_shared_ = true;
    spills_.store(current, std::memory_order_release);
}

bool PagePool::lacks_slab() const {
    const Lock lock(mutex_);
    return !quiesced_ && free_.reserved_pages() < pages_;
}

// The provisioner waits meanwhile, and quiesce() too.
Status PagePool::add_missing_slab() {
    PoolLock lock(*this);
    while (provisioning_) changed_.wait(mutex_);
    if (quiesced_ || free_.reserved_pages() >= pages_) return Status::no_space;
    provisioning_ = true;
    const Status status = add_slab();
    provisioning_ = false;
    changed_.notify_all();
    lock.unlock_and_wake();
    return status;
}

// --- mapping ---------------------------------------------------------------------------------

bool PagePool::map_at_once(std::uint64_t number, EntrySlot slot, PageRef& out) {
    PoolLock lock(*this);
    const PageEntry entry = slot.load();
    if (entry.is_mapped()) {
        if (entry == PageEntry::mapped(device_index_, entry.page())) {
            pin(entry.page(), Access::write);
            out = PageRef(*this, entry.page(), Access::write);
        }
        return true;
    }
    // A retired page of this number has to be cleared and reused: with another, it would have two.
    if (is_retired_from(entry, number) || free_.clear_pages() == 0 || frozen_ != 0) return false;
    FreePages::Page page;
    const bool found = take_free_page(page);
    GPUNBD_ASSERT(found && page.is_clear,
                  "a page that reads as zeroes is taken while there is one");
    publish(slot, page.index, out);
    lock.unlock_and_wake();
    device_.populate(slabs_.slab_of(page.index), slabs_.offset_in_slab(page.index), page_size_);
    return true;
}

void PagePool::submit(PageRequest& request) {
    GPUNBD_ASSERT(request.in_progress, "a worker knows of its request before the provisioner does");
    {
        const Lock lock(mutex_);
        requests_.push(request);
    }
    if (provisioner_.wake()) return;
    // There is no thread: fail all requests.
    PageRequests refused;
    {
        const Lock lock(mutex_);
        refused = std::exchange(requests_, PageRequests{});
    }
    complete(refused, Status::no_space);
}

void PagePool::complete(PageRequests requests, Status status) {
    while (PageRequest* const request = requests.pop()) {
        request->status = status;
        request->completions->put(*request);
    }
}

Status PagePool::map(std::uint64_t number, EntrySlot slot, PageRef& out) {
    const Lock serialized(mapping_mutex_);
    while (!map_at_once(number, slot, out)) {
        PageIndex page = 0;
        if (pin_retired(number, slot, page)) return map_retired(slot, page, out);
        TakenPage taken;
        if (const Status status = take_in_order(taken, Purpose::zeroes); status != Status::ok) {
            const Lock lock(mutex_);
            if (!has_page(slot, number)) return status;
        } else if (map_taken(number, slot, taken, out)) {
            return Status::ok;
        }
        // map_at_once() of another thread has mapped a page meanwhile.
    }
    return Status::ok;
}

bool PagePool::pin_retired(std::uint64_t number, EntrySlot slot, PageIndex& page) {
    const Lock lock(mutex_);
    const PageEntry entry = slot.load();
    if (!is_retired_from(entry, number)) return false;
    page = entry.page();
    pin(page, Access::read);  // the page stays retired
    return true;
}

Status PagePool::map_retired(EntrySlot slot, PageIndex page, PageRef& out) {
    const PageRef pinned(*this, page, Access::read);
    // Other holders of the page see its contents change, as by any write.
    if (const Status status = clear(page); status != Status::ok) return status;
    const Lock lock(mutex_);
    wait_for_thaw();
    // replace() may have mapped another page meanwhile.
    if (slot.load() != PageEntry::retired(device_index_, page)) return Status::ok;
    retired_.remove(page);
    publish(slot, page, out);
    return Status::ok;
}

// False: another page was mapped meanwhile, and this one is free again.
bool PagePool::map_taken(std::uint64_t number, EntrySlot slot, const TakenPage& taken,
                         PageRef& out) {
    {
        const Lock lock(mutex_);
        wait_for_thaw();
        if (!has_page(slot, number)) {
            taken.owner->publish(slot, taken.page, out);
            return true;
        }
    }
    taken.owner->put_back(taken.page);
    return false;
}

void PagePool::publish(EntrySlot slot, PageIndex page, PageRef& out) {
    GPUNBD_ASSERT(!slot.load().is_mapped(), "a page number has one page");
    GPUNBD_ASSERT(!retired_.contains(page), "a page that is mapped is not retired");
    GPUNBD_ASSERT(!is_shared(page), "a page that is mapped newly has one entry");
    pin(page, Access::write);
    out = PageRef(*this, page, Access::write);
    mapped_pages_.fetch_add(1, std::memory_order_relaxed);
    slot.store(PageEntry::mapped(device_index_, page));
}

// Whether the page that was mapped there is still pinned and not used elsewhere.
bool PagePool::is_retired_from(PageEntry entry, std::uint64_t number) const {
    return entry.state() == PageEntry::State::retired && retired_.contains(entry.page(), number);
}

bool PagePool::has_page(EntrySlot slot, std::uint64_t number) const {
    const PageEntry entry = slot.load();
    return entry.is_mapped() || is_retired_from(entry, number);
}

PagePool::Replaced PagePool::unmap(std::uint64_t number, EntrySlot slot, PageRequest* request) {
    PageIndex page = 0;
    {
        // Under the lock, so that take() always finds a page mapped, retired, pending or free.
        const Lock lock(mutex_);
        if (frozen_ != 0 && request != nullptr) {
            thaw_waiters_.push(*request);
            return Replaced::later;
        }
        wait_for_thaw();
        const PageEntry entry = slot.load();
        if (!entry.is_mapped()) return Replaced::done;
        if (entry.device() != device_index_) return Replaced::moved_to_other_pool;
        page = entry.page();
        // The next page of this number is not mapped in a spill pool if there is memory elsewhere.
        // If there are several tables, a later page of this pool may have the same number in
        // another one. A page that moves does not return either: commit_move() could not tell that
        // its contents are new.
        const bool returns = !is_spill_ && tables_.size() < 2 && !entry.is_moving();
        slot.store(returns ? PageEntry::retired(device_index_, page) : PageEntry());
        drop(page, returns ? number : RetiredPages::no_number);
    }
    free_if_unpinned(page);
    return Replaced::done;
}

// One entry of the page is gone.
void PagePool::drop(PageIndex page, std::uint64_t number) {
    if (is_shared(page)) {
        sharers_[page].fetch_sub(1, std::memory_order_relaxed);
        return;
    }
    GPUNBD_ASSERT(!free_.is_free(page), "a page that has an entry is not free");
    const std::uint64_t mapped = mapped_pages_.fetch_sub(1, std::memory_order_relaxed);
    GPUNBD_ASSERT(mapped != 0, "a page that loses its last entry was counted");
    retired_.add(page, number);
}

// --- moving ----------------------------------------------------------------------------------

bool PagePool::begin_move(std::uint64_t number, EntrySlot slot, PageRef& out) {
    const Lock lock(mutex_);
    const PageEntry entry = slot.load();
    if (quiesced_ || !entry.is_mapped() || entry.is_moving()) return false;
    if (entry.device() != device_index_) return false;
    const PageIndex page = entry.page();
    GPUNBD_ASSERT(!free_.is_free(page) && !retired_.contains(page),
                  "a page that has an entry is neither free nor retired");
    for (const Table& table : tables_) {
        const auto each = table.slot(number);
        if (!each || !each->load().has_page_of(entry)) continue;
        each->store(PageEntry::moving(device_index_, page));
    }
    // Not before: see pin().
    if (pins_.any_writer(page)) {
        store_moving(number, page, entry);
        return false;
    }
    ++moving_;
    pin(page, Access::read);
    out = PageRef(*this, page, Access::read);
    return true;
}

bool PagePool::commit_move(std::uint64_t number, PageIndex from, PagePool& target, PageIndex page) {
    PoolLock lock(*this);
    GPUNBD_ASSERT(&target != this || page != from, "a page moves to another one");
    GPUNBD_ASSERT(target.home_ == home_, "a page moves between the pools of one part of a layout");
    GPUNBD_ASSERT(!target.is_shared(page), "the target of a move has no entry yet");
    const std::uint32_t sharers = sharers_[from].load(std::memory_order_relaxed);
    target.sharers_[page].store(sharers, std::memory_order_relaxed);
    target.mapped_pages_.fetch_add(1, std::memory_order_relaxed);
    const bool is_moving =
        store_moving(number, from,
                     sharers != 0 ? PageEntry::shared(target.device_index_, page)
                                  : PageEntry::mapped(target.device_index_, page));
    if (is_moving) {
        sharers_[from].store(0, std::memory_order_relaxed);
        mapped_pages_.fetch_sub(1, std::memory_order_relaxed);
        retired_.add(from, RetiredPages::no_number);  // pinned by the caller
        target.end_filling();
    } else {
        target.sharers_[page].store(0, std::memory_order_relaxed);
        target.mapped_pages_.fetch_sub(1, std::memory_order_relaxed);
    }
    lock.unlock_and_complete(end_move());
    return is_moving;
}

void PagePool::cancel_move(std::uint64_t number, PageIndex from) {
    PoolLock lock(*this);
    stop_moving(number, from);
    lock.unlock_and_complete(end_move());
}

// False: the page is not moving any more.
bool PagePool::store_moving(std::uint64_t number, PageIndex page, PageEntry entry) {
    const PageEntry moving = PageEntry::moving(device_index_, page);
    bool any = false;
    for (const Table& table : tables_) {
        const auto each = table.slot(number);
        if (!each || each->load() != moving) continue;
        each->store(entry);
        any = true;
    }
    return any;
}

void PagePool::stop_moving(std::uint64_t number, PageIndex page) {
    store_moving(number, page, entry_of(page));
}

// The entry of a mapped page that is not moving.
PageEntry PagePool::entry_of(PageIndex page) {
    if (is_shared(page)) return PageEntry::shared(device_index_, page);
    for (SharedCopy& copy : shared_copies_) copy.is_old |= copy.page == page;
    return PageEntry::mapped(device_index_, page);
}

bool PagePool::moves_from_here(PageEntry entry) const {
    return entry.is_moving() && entry.device() == device_index_;
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
    const Lock lock(mutex_);
    GPUNBD_ASSERT(request.in_progress, "a worker knows of its request before it waits for a move");
    if (!moves_from_here(slot.load())) return false;
    request.slot = slot;
    move_waiters_.push(request);
    return true;
}

bool PagePool::drain(std::uint32_t slab) {
    PoolLock lock(*this);
    if (!slabs_.is_allocated(slab)) return false;
    if (free_.is_draining(slab)) return true;
    free_.set_draining(slab, true);
    if (!free_.is_empty(slab)) return true;
    announce_releases();
    lock.unlock_and_wake();
    if (!ahead_) release_empty_slabs();
    return true;
}

void PagePool::stop_draining(std::uint32_t slab) {
    PoolLock lock(*this);
    if (free_.is_empty(slab)) return;
    free_.set_draining(slab, false);
    lock.unlock_and_wake();
}

bool PagePool::is_allocated(std::uint32_t slab) const {
    const Lock lock(mutex_);
    return slabs_.is_allocated(slab) || free_.pages_in_slab(slab) != 0;
}

SlabKind PagePool::kind_of(std::uint32_t slab) const {
    const Lock lock(mutex_);
    return slabs_.kind_of(slab);
}

// --- pages -----------------------------------------------------------------------------------

Status PagePool::take(PageIndex& page) { return take(page, Purpose::zeroes); }

Status PagePool::take_target(PageIndex& page, std::optional<SlabKind> kind) {
    if (!kind) return take(page, Purpose::move);
    PoolLock lock(*this);
    FreePages::Page found;
    while (!take_free_page(found, *kind)) {
        if (kind == SlabKind::revocable || quiesced_) return Status::no_space;
        if (const Status status = add_slab(true); status != Status::ok) return status;
    }
    page = found.index;
    filling_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock_and_wake();
    return Status::ok;
}

void PagePool::put_back_target(PageIndex page) {
    put_back(page);
    end_filling();
}

void PagePool::end_filling() {
    const std::uint32_t filling = filling_.fetch_sub(1, std::memory_order_relaxed);
    GPUNBD_ASSERT(filling != 0, "a page that was taken to be filled is mapped or given back once");
}

void PagePool::put_back(PageIndex page) {
    bool discards = false;
    {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(!free_.is_free(page), "a page that was taken is given back once");
        discards = !quiesced_;
        ++pending_;
    }
    free(page, discards);
}

Status PagePool::take(PageIndex& page, Purpose purpose) {
    PoolLock lock(*this);
    FreePages::Page found;
    while (!take_free_page(found)) {
        if (pending_ != 0) {
            changed_.wait(mutex_);
        } else if (purpose == Purpose::move && quiesced_) {
            return Status::no_space;
        } else if (const Status status = add_slab();
                   status != Status::ok && pending_ == 0 && free_.free_pages() == 0) {
            return status;
        }
    }
    page = found.index;
    if (purpose == Purpose::move) filling_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock_and_wake();
    if (found.is_clear) {
        device_.populate(slabs_.slab_of(page), slabs_.offset_in_slab(page), page_size_);
        return Status::ok;
    }
    if (purpose != Purpose::zeroes) return Status::ok;
    const Status status = clear(page);
    if (status != Status::ok) put_back(page);
    return status;
}

// Passes over devices that have failed, unless all have. After a failure, returns that of the first
// device.
Status PagePool::take_in_order(TakenPage& out, Purpose purpose) {
    std::optional<Status> failure;
    const auto take_from = [&](PagePool* pool) {
        if (pool->device_.failed()) return false;
        const Status status = pool->take(out.page, purpose);
        if (status != Status::ok && !failure) failure = status;
        out.owner = pool;
        return status == Status::ok;
    };
    if (take_from(this) || std::ranges::any_of(spills(), take_from)) return Status::ok;
    if (failure) return *failure;
    out.owner = this;  // all have failed, so its copies will fail
    return take(out.page, purpose);
}

// No exception may leave the provisioner's thread.
Status PagePool::clear(PageIndex page) {
    try {
        return device_.clear(slabs_.slab_of(page), slabs_.offset_in_slab(page), page_size_);
    } catch (const std::bad_alloc&) {  // no memory for an error message
        return Status::io_error;
    }
}

bool PagePool::discard(PageIndex page) noexcept {
    try {
        return device_.discard(slabs_.slab_of(page), slabs_.offset_in_slab(page), page_size_);
    } catch (const std::bad_alloc&) {
        return false;  // the page has to be cleared
    }
}

bool PagePool::take_free_page(FreePages::Page& page) {
    if (!free_.find(page)) return false;
    take_out(page);
    return true;
}

bool PagePool::take_free_page(FreePages::Page& page, SlabKind kind) {
    for (std::uint32_t slab = 0; slab != slabs_.count(); ++slab) {
        if (slabs_.kind_of(slab) != kind || !free_.find_in(slab, page)) continue;
        take_out(page);
        return true;
    }
    return false;
}

void PagePool::take_out(FreePages::Page page) {
    GPUNBD_ASSERT(!retired_.contains(page.index) && !is_shared(page.index),
                  "a free page has no entry and no former entry");
    const bool was_empty = free_.take(page);
    if (was_empty) announce_releases();  // the slab is not to be released any more
}

void PagePool::free_if_unpinned(PageIndex page) {
    bool discards = false;
    {
        // Several threads may find the page unpinned; the lock lets one of them free it.
        const Lock lock(mutex_);
        if (!retired_.contains(page) || pins_.any(page)) return;
        GPUNBD_ASSERT(!free_.is_free(page), "a retired page is not free");
        retired_.remove(page);
        discards = !quiesced_;
        ++pending_;
    }
    free(page, discards);
}

void PagePool::free(PageIndex page, bool discards) {
    const bool is_clear = discards && discard(page);
    PoolLock lock(*this);
    put_back({page, is_clear});
    lock.unlock_and_wake();
}

void PagePool::put_back(FreePages::Page page) {
    const std::uint32_t slab = slabs_.number_of(page.index);
    GPUNBD_ASSERT(slabs_.is_allocated(slab), "a slab is not released while its pages are in use");
    GPUNBD_ASSERT(!retired_.contains(page.index) && !is_shared(page.index),
                  "a page becomes free when it has no entry and no former entry");
    const bool emptied = free_.put(page);
    const bool is_unused =
        emptied && (free_.is_draining(slab) ||
                    (free_.empty_slabs() > spare_slabs_ && provision_ == Provision::thin));
    if (emptied) announce_releases();
    if (is_unused && !ahead_) release_slab(slab);
    end_pending();  // not before: until now the device may have had no memory for a slab
}

// A page or slab has become free, or has failed to.
void PagePool::end_pending() {
    GPUNBD_ASSERT(pending_ != 0, "others know beforehand that a page or slab may become free");
    --pending_;
    changed_.notify_all();
}

// --- slabs -----------------------------------------------------------------------------------

// The memory that a device has left may fit a smaller slab. Retained slabs have one size.
Status PagePool::add_slab(bool fixed) {
    std::uint32_t pages = pages_of_next_slab(fixed);
    const std::uint32_t fewest =
        slabs_.is_retained() ? pages : (pages + smallest_slab_part - 1) / smallest_slab_part;
    Status status = Status::no_space;
    for (; status == Status::no_space && pages != 0 && pages >= fewest; pages /= 2) {
        status = add_slab_of(pages, fixed);
    }
    return status;
}

Status PagePool::add_slab_of(std::uint32_t pages, bool fixed) {
    const std::uint32_t number = number_of_next_slab();
    if (number == slabs_.count()) return Status::no_space;
    free_.reserve_slab(number, pages);
    ++pending_;
    Slab slab;
    const SlabRequest request{.bytes = pages * page_size_,
                              .provision = provision_,
                              .kept = slabs_.is_retained(),
                              .fixed = fixed};
    Status status = Status::no_space;
    {
        const Unlock unlock(mutex_);
        status = allocate(number, request, slab);
    }
    end_pending();
    if (status != Status::ok) {
        free_.unreserve_slab(number);
        return status;
    }
    slabs_.add(number, pages, std::move(slab));
    free_.add_slab(number);
    announce_releases();
    return Status::ok;
}

// No more than the export needs: that may be all that the device has. Pages that other exports
// have had return in any order, so slabs of one size fit together.
std::uint32_t PagePool::pages_of_next_slab(bool fixed) const {
    const std::uint64_t reserved = free_.reserved_pages();
    // The free pages of a draining slab cannot be used, nor can the old pages of moved contents
    // while slow clients still read them, nor pages that are being filled: replacements, and
    // targets of moves. A client may trim a page while it moves, and then needs another one.
    const std::uint64_t unusable = (fixed ? slabs_.slab_pages() : 0) + retired_.unnumbered() +
                                   filling_.load(std::memory_order_relaxed) +
                                   std::uint64_t{free_.draining_slabs()} * slabs_.slab_pages();
    if (was_shared_) return reserved < pages_ + unusable ? slabs_.slab_pages() : 0;
    if (reserved < pages_) {
        return static_cast<std::uint32_t>(
            std::min<std::uint64_t>(pages_ - reserved, slabs_.slab_pages()));
    }
    const bool has_room = reserved + slabs_.slab_pages() <= max_reserved_;
    return unusable != 0 && has_room ? slabs_.slab_pages() : 0;
}

// slabs_.count(): there is no memory for another number.
std::uint32_t PagePool::number_of_next_slab() {
    const std::uint32_t count = slabs_.count();
    const std::uint32_t number = std::min(free_.unreserved_slab(), count);
    const std::uint64_t slabs = std::uint64_t{count} * 2;
    const std::uint64_t pages = slabs * slabs_.slab_pages();
    if (number != count || slabs > slabs_.max_count() ||
        pages > std::numeric_limits<PageIndex>::max()) {
        return number;
    }
    try {
        pins_.grow(pages);
        retired_.grow(pages);
        sharers_.grow(pages);
        free_.grow(static_cast<std::uint32_t>(slabs));
        slabs_.grow(static_cast<std::uint32_t>(slabs));
    } catch (const std::bad_alloc&) {  // slabs_ has not grown
    }
    return number;
}

Status PagePool::allocate(std::uint32_t number, const SlabRequest& request, Slab& slab) {
    const std::uint64_t bytes = request.bytes;
    SlabBudget& budget = slabs_.budget();
    PendingReleases& releases = device_.releases();
    Status status = Status::no_space;
    std::uint64_t ended = 0;
    try {
        do {
            ended = releases.ended();
            if (!budget.take(bytes)) continue;
            status = device_.allocate(request, slab);
            if (status != Status::ok) budget.give_back(bytes);
        } while (status == Status::no_space && may_wait_for_others() &&
                 releases.wait_for_one(ended));
    } catch (const std::bad_alloc&) {  // no memory for the description of the slab
        budget.give_back(bytes);
        return Status::no_space;
    }
    if (status != Status::ok) return status;
    return slabs_.retain(number, slab) ? Status::ok : Status::no_space;
}

// A pool that has free pages does not wait: other pools may be waiting for one of its slabs. Nor
// does a pool that has a slab to release, which the waiting thread may have to do.
bool PagePool::may_wait_for_others() const {
    const Lock lock(mutex_);
    if (releasable_slabs() != 0) return false;
    return provision_ == Provision::full || free_.free_pages() == 0;
}

bool PagePool::releases_later() const { return ahead_ && provision_ == Provision::thin; }

void PagePool::release_slab(std::uint32_t number) {
    GPUNBD_ASSERT(!ahead_ || provisioning_, "one thread at a time releases slabs ahead of need");
    Slab slab = slabs_.remove(number);
    free_.remove_slab(number);
    ++releasing_;
    announce_releases();
    ++pending_;
    {
        const Unlock unlock(mutex_);
        slabs_.release(number, slab);
    }
    free_.unreserve_slab(number);
    GPUNBD_ASSERT(releasing_ != 0, "a release ends once");
    --releasing_;
    announce_releases();
    end_pending();
}

// A quiesced pool keeps its slabs, so allocations by other pools do not wait for them.
void PagePool::announce_releases() {
    GPUNBD_ASSERT(
        free_.clear_pages() <= free_.free_pages() && free_.free_pages() <= free_.reserved_pages(),
        "pages that read as zeroes are free, and free pages are in slabs");
    const std::uint32_t slabs = releasing_ + (quiesced_ ? 0 : releasable_slabs());
    for (; announced_ < slabs; ++announced_) device_.releases().begin();
    for (; announced_ > slabs; --announced_) device_.releases().end();
}

// --- adoption --------------------------------------------------------------------------------

std::string PagePool::adopt(Descriptors& descriptors, const EntryCounts& entries,
                            ImportedSlabs* imported) {
    LongWork work("taking over", device_.info().id, page_numbers() * page_size_, "bytes");
    const Lock lock(mutex_);
    GPUNBD_ASSERT(free_.reserved_pages() == 0, "a pool adopts slabs before it makes any");
    GPUNBD_ASSERT(entries.size() <= page_numbers(), "each page that is counted has a number");
    for (std::uint32_t number = 0; number != slabs_.count(); ++number) {
        const SlabEntry entry = slabs_.entry(number);
        if (entry.pages == 0) continue;
        work.set_done(std::uint64_t{number} * slabs_.slab_pages() * page_size_);
        std::string reason = adopt_slab(number, entry, descriptors, imported);
        if (!reason.empty()) return reason;
    }
    for (PageIndex page = 0; page != entries.size(); ++page) {
        if (entries[page] == 0) continue;
        if (slabs_.index_in_slab(page) >= free_.pages_in_slab(slabs_.number_of(page))) {
            return fmt::format("page {} is used, and its slab is missing", page);
        }
    }
    return {};
}

std::string PagePool::adopt_slab(std::uint32_t number, SlabEntry entry, Descriptors& descriptors,
                                 ImportedSlabs* imported) {
    // All slabs have the same number of pages, except for one that has the remainder.
    const std::uint32_t whole = slabs_.slab_pages();
    const std::uint64_t reserved = free_.reserved_pages();
    const bool is_last = entry.pages == made_pages_ % whole && reserved % whole == 0;
    const bool is_too_much = !was_shared_ && reserved + entry.pages > max_reserved_;
    if ((entry.pages != whole && !is_last) || is_too_much) {
        return fmt::format("slab {} has an invalid number of pages: {}", number, entry.pages);
    }
    const auto descriptor = descriptors.find(number);
    if (descriptor == descriptors.end()) return fmt::format("slab {} is missing", number);
    if (!slabs_.adopt(number, entry, descriptor->second, imported)) {
        return fmt::format("slab {} cannot be taken over", number);
    }
    descriptors.erase(descriptor);
    free_.reserve_slab(number, entry.pages);
    return {};
}

// A page that is not mapped is discarded: it may contain part of an unfinished write.
void PagePool::commit_adoption(const EntryCounts& entries) noexcept {
    PoolLock lock(*this);
    slabs_.commit_adoption();
    for (PageIndex page = 0; page != entries.size(); ++page) {
        if (slabs_.index_in_slab(page) >= free_.pages_in_slab(slabs_.number_of(page))) continue;
        if (free_.is_free(page)) continue;  // fill() has made its slab since
        GPUNBD_ASSERT(!retired_.contains(page), "no process keeps the retired pages of another");
        if (entries[page] != 0) {
            sharers_[page].store(entries[page] - 1, std::memory_order_relaxed);
            mapped_pages_.fetch_add(1, std::memory_order_relaxed);
            continue;
        }
        ++pending_;
        bool is_clear = false;
        {
            const Unlock unlock(mutex_);
            is_clear = discard(page);
        }
        put_back({page, is_clear});
    }
    lock.unlock_and_wake();
}

bool PagePool::adoption_finished() const {
    const Lock lock(mutex_);
    return !slabs_.has_unmapped();
}

void PagePool::finish_adoption() noexcept {
    {
        const Lock lock(mutex_);
        slabs_.allow_mapping();
    }
    provisioner_.wake();  // without a thread, the slabs are used through channels
}

void PagePool::abandon() noexcept {
    provisioner_.stop();
    slabs_.abandon();
}

std::vector<PagePool::SlabCopy> PagePool::copy_slabs() const {
    const Lock lock(mutex_);
    return slabs_.copy();
}

// --- the provisioner -------------------------------------------------------------------------

std::uint32_t PagePool::releasable_slabs() const {
    const std::uint32_t kept = std::min(free_.empty_slabs(), spare_slabs_);
    return free_.drained_slabs() + (releases_later() ? free_.empty_slabs() - kept : 0);
}

std::uint32_t PagePool::slab_to_release() const {
    return free_.drained_slabs() != 0 ? free_.drained_slab() : free_.last_empty_slab();
}

// Whether fewer than half a slab of pages are ready for use, and more can be made ready.
bool PagePool::can_prepare() const {
    const std::uint64_t ahead = (std::uint64_t{slabs_.slab_pages()} + 1) / 2;
    return !is_spill_ && free_.clear_pages() < ahead &&
           (free_.clear_pages() != free_.free_pages() ||
            (provision_ == Provision::thin && free_.reserved_pages() < pages_));
}

bool PagePool::has_work() const { return ahead_ && (releasable_slabs() != 0 || can_prepare()); }

void PagePool::wake_provisioner() {
    if (!provisioner_.wake()) release_empty_slabs();
}

// In place of the provisioner, if the system refuses a thread: other pools may be waiting for the
// memory.
void PagePool::release_empty_slabs() {
    {
        const Lock lock(mutex_);
        if (!provisioning_) {
            provisioning_ = true;
            while (!quiesced_ && releasable_slabs() != 0) release_slab(slab_to_release());
            provisioning_ = false;
            changed_.notify_all();
            return;
        }
    }
    // Another thread in this function checks again before it ends. A provisioner that was started
    // meanwhile may have checked for the last time, so wake it once more.
    provisioner_.wake();
}

void PagePool::provision() {
    const Lock lock(mutex_);
    while (provisioning_) changed_.wait(mutex_);
    provisioning_ = true;
    while (!quiesced_) {
        complete_requests();
        if (releasable_slabs() != 0) {
            release_slab(slab_to_release());
        } else if (ahead_ && can_prepare() && prepare() == Status::ok) {
            continue;
        } else if (!map_adopted_slab()) {
            break;  // if prepare() has failed, the next request for a page fails too and reports it
        }
    }
    provisioning_ = false;
    changed_.notify_all();
}

void PagePool::quiesce() {
    const Lock lock(mutex_);
    quiesced_ = true;
    announce_releases();
    while (provisioning_ || moving_ != 0 || pending_ != 0) changed_.wait(mutex_);
}

void PagePool::resume() {
    {
        const Lock lock(mutex_);
        quiesced_ = false;
        announce_releases();
    }
    wake_provisioner();
}

void PagePool::complete_requests() {
    GPUNBD_ASSERT(provisioning_, "quiesce() waits for requests that are being served");
    while (PageRequest* const request = requests_.pop()) {
        const Unlock unlock(mutex_);
        {
            PageRef page;
            request->status = request->copies ? copy_shared(request->slot)
                                              : map(request->number, request->slot, page);
        }
        request->completions->put(*request);
    }
}

Status PagePool::prepare() {
    return free_.clear_pages() != free_.free_pages() ? clear_a_page() : add_slab();
}

bool PagePool::map_adopted_slab() {
    Slab* const slab = slabs_.next_unmapped();
    if (slab == nullptr) return false;
    GPUNBD_ASSERT(provisioning_ && ahead_,
                  "an adopted slab stays while it is mapped, because only this thread releases it");
    const Unlock unlock(mutex_);
    slabs_.map(*slab);
    return true;
}

Status PagePool::clear_a_page() {
    GPUNBD_ASSERT(provisioning_, "one thread at a time clears pages ahead of need");
    const FreePages::Page page = free_.find_unclear();
    take_out(page);
    ++pending_;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        status = clear(page.index);
    }
    put_back({page.index, status == Status::ok});
    return status;
}

// --- state -----------------------------------------------------------------------------------

std::uint64_t PagePool::allocated_bytes() const {
    const Lock lock(mutex_);
    return free_.reserved_pages() * page_size_;
}

// Only the last slab may be shorter.
std::uint64_t PagePool::allocated_slabs() const {
    const Lock lock(mutex_);
    return (free_.reserved_pages() + slabs_.slab_pages() - 1) / slabs_.slab_pages();
}

std::uint64_t PagePool::promised_bytes() const {
    const Lock lock(mutex_);
    return pages_ * page_size_;
}

std::uint64_t PagePool::retired_bytes() const {
    const Lock lock(mutex_);
    return retired_.count() * page_size_;
}

}  // namespace gpunbd::storage
