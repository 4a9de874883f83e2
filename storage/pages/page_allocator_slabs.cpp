// The slabs of a page allocator: what its tables are promised, allocation and release.
#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/long_work.hpp"
#include "storage/pages/page_allocator.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint32_t smallest_slab_part = 8;  // of a slab that the device has no memory for

}  // namespace

// --- what the tables are promised ------------------------------------------------------------

void PageAllocator::promise(std::int64_t pages) {
    promise_.pages += static_cast<std::uint64_t>(pages);  // modulo 2^64
    use_whole_slabs();
    if (pages < 0 && config().provision == Provision::full && !quiesced_) release_surplus();
}

void PageAllocator::move_directory(const std::shared_ptr<const SharedDirectory>& target) {
    const Lock lock(mutex_);
    slabs_.directory().move_to(target);
    use_whole_slabs();
}

Status PageAllocator::fill(const std::stop_token& stop) {
    const Lock lock(mutex_);
    LongWork work("provisioning", slabs_.device().info().id, promise_.pages * config().page_size,
                  "bytes");
    while (free_.reserved_pages() < promise_.pages) {
        work.set_done(free_.reserved_pages() * config().page_size);
        if (stop.stop_requested()) return Status::no_space;
        if (const Status status = add_slab(); status != Status::ok) return status;
    }
    return Status::ok;
}

Status PageAllocator::add_missing_slab() {
    PoolLock lock(*this);
    begin_provisioning();
    const bool is_missing = !quiesced_ && free_.reserved_pages() < promise_.pages;
    const Status status = is_missing ? add_slab() : Status::no_space;
    end_provisioning();
    lock.unlock_and_wake();
    return status;
}

// Slabs that no table was promised.
void PageAllocator::release_surplus() {
    begin_provisioning();
    while (free_.empty_slabs() != 0) {
        const std::uint32_t slab = free_.last_empty_slab();
        if (free_.reserved_pages() - free_.pages_in_slab(slab) < promise_.pages) break;
        release_slab(slab);
    }
    end_provisioning();
}

// --- slabs -----------------------------------------------------------------------------------

// The memory that a device has left may fit a smaller slab. Kept slabs have one size.
Status PageAllocator::add_slab(NewSlab kind) {
    std::uint32_t pages = pages_of_next_slab(kind.fixed);
    const std::uint32_t fewest =
        config().is_kept() ? pages : (pages + smallest_slab_part - 1) / smallest_slab_part;
    Status status = Status::no_space;
    for (; status == Status::no_space && pages != 0 && pages >= fewest; pages /= 2) {
        status = add_slab_of(pages, kind);
    }
    return status;
}

Status PageAllocator::add_slab_of(std::uint32_t pages, NewSlab kind) {
    const std::uint32_t number = number_of_next_slab();
    if (number == slabs_.count()) return Status::no_space;
    free_.reserve_slab(number, pages);
    ++pending_;
    Slab slab;
    const SlabRequest request{.bytes = pages * config().page_size,
                              .provision = config().provision,
                              .kept = config().is_kept(),
                              .fixed = kind.fixed};
    Status status = Status::no_space;
    {
        const Unlock unlock(mutex_);
        status = allocate(number, request, kind.is_ahead, slab);
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
std::uint32_t PageAllocator::pages_of_next_slab(bool fixed) const {
    const std::uint64_t reserved = free_.reserved_pages();
    // The free pages of a draining slab cannot be used, nor can the old pages of moved contents
    // while slow clients still read them, nor pages that are being filled: replacements, and
    // targets of moves. A client may trim a page while it moves, and then needs another one.
    const std::uint64_t unusable =
        (fixed ? slabs_.numbers().slab_pages() : 0) + pages_.retired().unnumbered() +
        pages_.filling() + std::uint64_t{free_.draining_slabs()} * slabs_.numbers().slab_pages();
    if (promise_.in_whole_slabs)
        return reserved < promise_.pages + unusable ? slabs_.numbers().slab_pages() : 0;
    if (reserved < promise_.pages) {
        return static_cast<std::uint32_t>(
            std::min<std::uint64_t>(promise_.pages - reserved, slabs_.numbers().slab_pages()));
    }
    const bool has_room = reserved + slabs_.numbers().slab_pages() <= config().max_reserved();
    return unusable != 0 && has_room ? slabs_.numbers().slab_pages() : 0;
}

// slabs_.count(): there is no memory for another number.
std::uint32_t PageAllocator::number_of_next_slab() {
    const std::uint32_t count = slabs_.count();
    const std::uint32_t number = std::min(free_.unreserved_slab(), count);
    const std::uint64_t slabs = std::uint64_t{count} * 2;
    const std::uint64_t pages = slabs * slabs_.numbers().slab_pages();
    if (number != count || slabs > slabs_.directory().max_count() ||
        pages > std::numeric_limits<PageIndex>::max()) {
        return number;
    }
    try {
        pages_.grow(pages);
        free_.grow(static_cast<std::uint32_t>(slabs));
        slabs_.grow(static_cast<std::uint32_t>(slabs));
    } catch (const std::bad_alloc&) {  // slabs_ has not grown
    }
    return number;
}

Status PageAllocator::allocate(std::uint32_t number, const SlabRequest& request, bool is_ahead,
                               Slab& slab) {
    const std::uint64_t bytes = request.bytes;
    SlabBudget& budget = slabs_.budget();
    PendingReleases& releases = slabs_.device().releases();
    SlabLenders& lenders = slabs_.device().lenders();
    const bool yields = is_ahead || lends_.load();  // to pools that need memory now
    std::optional<SlabLenders::Asking> asking;
    const auto borrow = [&] {
        if (yields) return false;
        if (!asking) asking.emplace(lenders);
        return asking->release_slab();
    };
    Status status = Status::no_space;
    std::uint64_t ended = 0;
    try {
        do {
            ended = releases.ended();
            if ((yields && lenders.are_asked()) || !budget.take(bytes)) continue;
            status = slabs_.device().allocate(request, slab);
            if (status != Status::ok) budget.give_back(bytes);
        } while (status == Status::no_space && may_wait_for_others() &&
                 (releases.wait_for_one(ended) || borrow()));
    } catch (const std::bad_alloc&) {  // no memory for the description of the slab
        budget.give_back(bytes);
        return Status::no_space;
    }
    if (status != Status::ok) return status;
    return slabs_.keep(number, slab) ? Status::ok : Status::no_space;
}

// A pool that has free pages does not wait: other pools may be waiting for one of its slabs. Nor
// does a pool that has a slab to release, which the waiting thread may have to do.
bool PageAllocator::may_wait_for_others() const {
    const Lock lock(mutex_);
    if (releasable_slabs() != 0) return false;
    return config().provision == Provision::full || free_.free_pages() == 0;
}

void PageAllocator::release_slab(std::uint32_t number) {
    GPUNBD_ASSERT(!works_ahead_ || provisioning_,
                  "one thread at a time releases slabs ahead of need");
    Slab slab = slabs_.remove(number);
    free_.remove_slab(number);
    releases_.begin();
    announce_releases();
    ++pending_;
    {
        const Unlock unlock(mutex_);
        slabs_.release(number, slab);
    }
    free_.unreserve_slab(number);
    releases_.end();
    announce_releases();
    end_pending();
}

// A quiesced pool keeps its slabs, so allocations by other pools do not wait for them.
void PageAllocator::announce_releases() {
    GPUNBD_ASSERT(
        free_.clear_pages() <= free_.free_pages() && free_.free_pages() <= free_.reserved_pages(),
        "pages that read as zeroes are free, and free pages are in slabs");
    releases_.announce(quiesced_ ? 0 : releasable_slabs());
}

bool PageAllocator::drain(std::uint32_t slab) {
    PoolLock lock(*this);
    if (!slabs_.at(slab).is_allocated()) return false;
    if (free_.is_draining(slab)) return true;
    free_.set_draining(slab, true);
    if (!free_.is_empty(slab)) return true;
    announce_releases();
    lock.unlock_and_wake();
    if (!works_ahead_) release_empty_slabs();
    return true;
}

bool PageAllocator::is_draining(std::uint32_t slab) const {
    const Lock lock(mutex_);
    return free_.is_draining(slab);
}

std::uint32_t PageAllocator::usable_slabs() const {
    const Lock lock(mutex_);
    std::uint32_t slabs = 0;
    for (std::uint32_t slab = 0; slab != slabs_.count(); ++slab) {
        if (slabs_.at(slab).is_allocated() && !free_.is_draining(slab)) ++slabs;
    }
    return slabs;
}

void PageAllocator::stop_draining(std::uint32_t slab) {
    PoolLock lock(*this);
    if (free_.is_empty(slab)) return;
    free_.set_draining(slab, false);
    lock.unlock_and_wake();
}

std::optional<SlabKind> PageAllocator::kind_of(std::uint32_t slab) const {
    const Lock lock(mutex_);
    if (!slabs_.at(slab).is_allocated() && free_.pages_in_slab(slab) == 0) return std::nullopt;
    return storage::kind_of(slabs_.at(slab));
}

}  // namespace gpunbd::storage
