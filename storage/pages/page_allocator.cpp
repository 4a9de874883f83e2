#include "storage/pages/page_allocator.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_completions.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t bytes_per_pin_byte = 4096;  // of the export, for each byte of pin counts

}  // namespace

PageAllocator::PageAllocator(Device& device, const PoolConfig& config, Client& client)
    : client_(client),
      works_ahead_(device.slow_to_allocate() || config.is_kept()),
      slabs_(device, config),
      pages_(slabs_.page_numbers(), config.pages * config.page_size / bytes_per_pin_byte,
             device.sends_in_place()),
      free_(slabs_.count(), config.slab_pages),
      promise_{.pages = config.pages, .in_whole_slabs = slabs_.directory().is_shared()},
      releases_(device.releases()),
      provisioner_([this] { provision(); }) {}

PageAllocator::~PageAllocator() {
    GPUNBD_ASSERT(requests_.empty(), "the requests for pages are answered before a pool ends");
    GPUNBD_ASSERT(pending_ == 0, "releases end before the pool");
    GPUNBD_ASSERT(pages_.retired().count() == 0,
                  "the last pin of a retired page ends before its pool");
    slabs_.release_all();
}

void PageAllocator::quiesce() {
    const Lock lock(mutex_);
    quiesced_ = true;
    announce_releases();
    while (provisioning_ || pending_ != 0) changed_.wait(mutex_);
}

void PageAllocator::resume() {
    {
        const Lock lock(mutex_);
        quiesced_ = false;
        announce_releases();
    }
    wake();
}

PageAllocator::Usage PageAllocator::usage() const {
    const Lock lock(mutex_);
    const std::uint64_t page_size = config().page_size;
    const std::uint64_t reserved = free_.reserved_pages();
    return {.allocated = reserved * page_size,
            // Only the last slab may be shorter.
            .slabs = (reserved + slabs_.numbers().slab_pages() - 1) / slabs_.numbers().slab_pages(),
            .promised = promise_.pages * page_size,
            .missing = quiesced_ || reserved >= promise_.pages
                           ? 0
                           : (promise_.pages - reserved) * page_size,
            .retired = pages_.retired().count() * page_size};
}

// --- pages -----------------------------------------------------------------------------------

std::optional<PageIndex> PageAllocator::take_now(Purpose purpose) {
    if (purpose == Purpose::zeroes && free_.clear_pages() == 0) return std::nullopt;
    FreePages::Page page;
    if (!take_free_page(page)) return std::nullopt;
    GPUNBD_ASSERT(page.is_clear || free_.clear_pages() == 0,
                  "a page that reads as zeroes is taken while there is one");
    if (purpose == Purpose::fill) pages_.begin_filling();
    return page.index;
}

Status PageAllocator::take(PageIndex& page, Purpose purpose) {
    PoolLock lock(*this);
    FreePages::Page found;
    while (!take_free_page(found)) {
        if (pending_ != 0) {
            changed_.wait(mutex_);
        } else if (purpose == Purpose::fill && quiesced_) {
            return Status::no_space;
        } else if (const Status status = add_slab();
                   status != Status::ok && pending_ == 0 && free_.free_pages() == 0) {
            return status;
        }
    }
    page = found.index;
    if (purpose == Purpose::fill) pages_.begin_filling();
    lock.unlock_and_wake();
    if (found.is_clear) {
        slabs_.populate(page);
        return Status::ok;
    }
    if (purpose != Purpose::zeroes) return Status::ok;
    const Status status = slabs_.clear(page);
    if (status != Status::ok) put_back(page);
    return status;
}

Status PageAllocator::take_target(PageIndex& page, std::optional<SlabKind> kind) {
    if (!kind) return take(page, Purpose::fill);
    PoolLock lock(*this);
    FreePages::Page found;
    while (!take_free_page(found, *kind)) {
        if (kind == SlabKind::revocable || quiesced_) return Status::no_space;
        if (const Status status = add_slab({.fixed = true}); status != Status::ok) return status;
    }
    page = found.index;
    pages_.begin_filling();
    lock.unlock_and_wake();
    return Status::ok;
}

void PageAllocator::put_back(PageIndex page, Purpose purpose) {
    bool discards = false;
    {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(!free_.is_free(page), "a page that was taken is given back once");
        discards = may_discard();
        ++pending_;
    }
    free(page, discards);
    if (purpose == Purpose::fill) pages_.end_filling();
}

bool PageAllocator::take_free_page(FreePages::Page& page) {
    if (!free_.find(page)) return false;
    take_out(page);
    return true;
}

bool PageAllocator::take_free_page(FreePages::Page& page, SlabKind kind) {
    for (std::uint32_t slab = 0; slab != slabs_.count(); ++slab) {
        if (storage::kind_of(slabs_.at(slab)) != kind || !free_.find_in(slab, page)) continue;
        take_out(page);
        return true;
    }
    return false;
}

void PageAllocator::take_out(FreePages::Page page) {
    GPUNBD_ASSERT(!pages_.retired().contains(page.index) && !pages_.is_shared(page.index),
                  "a free page has no entry and no former entry");
    const bool was_empty = free_.take(page);
    if (was_empty) announce_releases();  // the slab is not to be released any more
}

void PageAllocator::retire(PageIndex page, std::uint64_t number) {
    GPUNBD_ASSERT(!free_.is_free(page), "a page that has had an entry is not free");
    pages_.retired().add(page, number);
}

void PageAllocator::free_if_unpinned(PageIndex page) {
    bool discards = false;
    {
        // Several threads may find the page unpinned; the lock lets one of them free it.
        const Lock lock(mutex_);
        if (!pages_.retired().contains(page) || pages_.is_pinned(page)) return;
        GPUNBD_ASSERT(!free_.is_free(page), "a retired page is not free");
        pages_.retired().remove(page);
        discards = may_discard();
        ++pending_;
    }
    free(page, discards);
}

void PageAllocator::free(PageIndex page, bool discards) {
    const bool is_clear = discards && slabs_.discard(page);
    PoolLock lock(*this);
    add_free({page, is_clear});
    lock.unlock_and_wake();
}

void PageAllocator::add_free(FreePages::Page page) {
    const std::uint32_t slab = slabs_.numbers().slab_of(page.index);
    GPUNBD_ASSERT(slabs_.at(slab).is_allocated(),
                  "a slab is not released while its pages are in use");
    GPUNBD_ASSERT(!pages_.retired().contains(page.index) && !pages_.is_shared(page.index),
                  "a page becomes free when it has no entry and no former entry");
    const bool emptied = free_.put(page);
    const bool is_unused =
        emptied && (free_.is_draining(slab) ||
                    (free_.empty_slabs() > spare_slabs() && config().provision == Provision::thin));
    if (emptied) announce_releases();
    if (is_unused && !works_ahead_) release_slab(slab);
    end_pending();  // not before: until now the device may have had no memory for a slab
}

// A page or slab has become free, or has failed to.
void PageAllocator::end_pending() {
    GPUNBD_ASSERT(pending_ != 0, "others know beforehand that a page or slab may become free");
    --pending_;
    changed_.notify_all();
}

// --- the provisioner -------------------------------------------------------------------------

std::uint32_t PageAllocator::releasable_slabs() const {
    std::uint32_t slabs = free_.drained_slabs();
    if (works_ahead_ && config().provision == Provision::thin) {
        slabs += free_.empty_slabs() - std::min(free_.empty_slabs(), spare_slabs());
    }
    return slabs;
}

std::uint32_t PageAllocator::slab_to_release() const {
    return free_.drained_slabs() != 0 ? free_.drained_slab() : free_.last_empty_slab();
}

// Whether fewer than half a slab of pages are ready for use, and more can be made ready.
bool PageAllocator::can_prepare() const {
    const std::uint64_t ahead = (std::uint64_t{slabs_.numbers().slab_pages()} + 1) / 2;
    return !config().is_spill && free_.clear_pages() < ahead &&
           (free_.clear_pages() != free_.free_pages() ||
            (config().provision == Provision::thin && free_.reserved_pages() < promise_.pages));
}

bool PageAllocator::has_work() const {
    return works_ahead_ && (releasable_slabs() != 0 || can_prepare());
}

void PageAllocator::wake() {
    if (!provisioner_.wake()) release_empty_slabs();
}

// In place of the provisioner, if the system refuses a thread: other pools may be waiting for the
// memory.
void PageAllocator::release_empty_slabs() {
    {
        const Lock lock(mutex_);
        if (!provisioning_) {
            begin_provisioning();
            while (!quiesced_ && releasable_slabs() != 0) release_slab(slab_to_release());
            end_provisioning();
            return;
        }
    }
    // Another thread in this function checks again before it ends. A provisioner that was started
    // meanwhile may have checked for the last time, so wake it once more.
    provisioner_.wake();
}

void PageAllocator::provision() {
    const Lock lock(mutex_);
    begin_provisioning();
    while (!quiesced_) {
        serve_requests();
        if (releasable_slabs() != 0) {
            release_slab(slab_to_release());
        } else if (works_ahead_ && can_prepare() && prepare() == Status::ok) {
            continue;
        } else if (!map_taken_slab()) {
            break;  // if prepare() has failed, the next request for a page fails too and reports it
        }
    }
    end_provisioning();
}

void PageAllocator::begin_provisioning() {
    while (provisioning_) changed_.wait(mutex_);
    provisioning_ = true;
}

void PageAllocator::end_provisioning() {
    GPUNBD_ASSERT(provisioning_, "only the thread that provisions ends that");
    provisioning_ = false;
    changed_.notify_all();
}

void PageAllocator::serve_requests() {
    GPUNBD_ASSERT(provisioning_, "quiesce() waits for requests that are being served");
    while (PageRequest* const request = requests_.pop()) {
        const Unlock unlock(mutex_);
        complete(*request, client_.serve(*request));
    }
}

Status PageAllocator::prepare() {
    return free_.clear_pages() != free_.free_pages() ? clear_a_page()
                                                     : add_slab({.is_ahead = true});
}

bool PageAllocator::map_taken_slab() {
    Slab* const slab = client_.next_unmapped_slab();
    if (slab == nullptr) return false;
    GPUNBD_ASSERT(
        provisioning_ && works_ahead_,
        "a taken-over slab stays while it is mapped, because only this thread releases it");
    const Unlock unlock(mutex_);  // mapping takes long
    try {
        slab->cpu = slabs_.device().address(*slab);
    } catch (const std::bad_alloc&) {  // the slab is read and written through channels
    }
    return true;
}

Status PageAllocator::clear_a_page() {
    GPUNBD_ASSERT(provisioning_, "one thread at a time clears pages ahead of need");
    const FreePages::Page page = free_.find_unclear();
    take_out(page);
    ++pending_;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        status = slabs_.clear(page.index);
    }
    add_free({page.index, status == Status::ok});
    return status;
}

void PageAllocator::submit(PageRequest& request) {
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

}  // namespace gpunbd::storage
