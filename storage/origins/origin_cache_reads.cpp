#include "storage/origins/origin_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/origins/origin_clone.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

// After the device has failed. At least 16 pages.
constexpr std::uint64_t reserve_bytes = std::uint64_t{64} << 20;
constexpr std::chrono::seconds patience{10};

}  // namespace

bool OriginCache::lacks(std::uint64_t page, Parts parts) const {
    return Fetches::absent(volume_, data_, page, parts) != 0;
}

void OriginCache::want(PageRequest& request, bool reads) noexcept {
    try {
        const Lock lock(mutex_);
        if (records_.wait_for_fills(request)) return;
        fetches_.add(request);
        counters_.misses.add();
        if (reads && options_.reads_ahead != Ahead::nothing) {
            fetches_.follow(request.number, request.parts);
        }
        fetches_.reads_ahead() ? changed_.notify_all() : changed_.notify_one();
    } catch (const std::exception&) {  // no memory
        complete(request, Status::io_error);
    }
}

void OriginCache::prefetch(std::uint64_t offset, std::uint64_t length) noexcept {
    const Lock lock(mutex_);
    if (fetches_.prefetch(offset, length)) changed_.notify_all();
}

void OriginCache::perform_fetch(std::uint64_t page, Worker& worker) {
    const Parts parts = fetches_.begin(page);
    busy_.begin(number_of(worker), {page, page + 1});
    ++fetching_;
    Status status = Status::ok;
    do {
        const Unlock unlock(mutex_);
        status = load(page, parts, worker.copier);
    } while (status == Status::no_space && fetches_.is_wanted(page) && !is_stopping_);
    --fetching_;
    PageRequests waiters = fetches_.take_waiters(page);
    if (status == Status::io_error) answer_each(page, std::exchange(waiters, {}), parts, worker);
    if (status == Status::no_space) {
        if (fetches_.fills(page)) fetches_.stop_filling();
    } else if (status != Status::ok) {
        counters_.errors.add();
    }
    if (fetches_.end(page)) changed_.notify_one();
    end_pages(worker);
    const Unlock unlock(mutex_);
    complete(waiters, status);
}

void OriginCache::answer_each(std::uint64_t page, PageRequests waiters, Parts failed,
                              Worker& worker) {
    const Unlock unlock(mutex_);
    while (PageRequest* const each = waiters.pop()) {
        complete(*each,
                 each->parts == failed ? Status::io_error : load(page, each->parts, worker.copier));
    }
}

Status OriginCache::load(std::uint64_t page, Parts parts, SlabCopier& copier) noexcept {
    try {
        {
            const Lock lock(mutex_);
            abandon_unreadable(page);
            if (lost_.test(page)) return Status::io_error;
        }
        return fill(page, parts, copier);
    } catch (const std::exception& error) {
        transfers_.log_error("cannot be read", error.what());
        return Status::io_error;
    }
}

Status OriginCache::fill(std::uint64_t page, Parts parts, SlabCopier& copier) {
    PageRef target = volume_.find_writable(page);
    const bool is_new = target.hole();
    const auto give_up = [&] {
        if (!is_new) return target.reset();
        if (!target.hole()) PagePool::give_up(std::move(target));
    };
    try {
        if (is_new) {
            const Status status = take(page, target, [&] {
                const Lock lock(mutex_);
                if (fetches_.is_wanted(page)) return Demand::waiting;
                const bool fills = fetches_.fills(page) || is_stopping_;
                return fills ? Demand::none : Demand::expected;
            });
            if (status != Status::ok) return status;
        }
        std::optional<WriteRecords::Fetching> fetching;
        if (!is_new) fetching.emplace(records_, page, target, parts);
        const Parts wanted = is_new ? parts : fetching->parts();
        const bool has_cuts = fetching && !fetching->cuts().empty();
        if (!is_new && wanted == 0 && !has_cuts) return Status::ok;
        Status of_read = read(page, wanted, target, copier);
        if (has_cuts && of_read == Status::ok) of_read = read_rests(*fetching, target, copier);
        const Lock lock(mutex_);
        const bool has_failed = target.device().failed();
        if (has_failed || of_read != Status::ok) {
            const Unlock unlock(mutex_);
            fetching.reset();
            const bool repeats = has_failed && &target.device() != options_.reserve;
            give_up();
            // Changes of the page may be lost now.
            return repeats && leave_device() ? load(page, parts, copier) : Status::io_error;
        }
        if (!is_new) {
            target.add_parts(wanted);
            cached_.ignore_use(page, target.index());  // this one is no client's
        } else if (volume_.fill_hole(page, target, volume_.division().all() & ~wanted)) {
            cached_.remember(page, fetches_.is_wanted(page));
            if (wanted != 0) {
                (fetches_.is_ahead(page) ? counters_.prefetched : counters_.fetched).add();
            }
        } else {
            give_up();  // a client has written the whole page
        }
        return Status::ok;
    } catch (...) {
        give_up();
        throw;
    }
}

// --- a device that fails -------------------------------------------------------------------------

bool OriginCache::has_failed_device() const { return volume_.pool(0).device().failed(); }

bool OriginCache::leave_device() {
    const Lock leaving(leaving_mutex_);
    if (has_left_) return true;
    if (options_.reserve == nullptr) return false;
    const std::uint64_t pages = std::min(
        std::max(reserve_bytes / volume_.page_size(), std::uint64_t{16}), pages_in_memory());
    const std::string& reserve = options_.reserve->info().id;
    std::string why = volume_.add_reserve(*options_.reserve, pages);
    has_left_ = why.empty();
    PageRef first;
    if (has_left_ && volume_.take_page(0, first) != Status::ok) why = reserve + " has none now";
    if (!first.hole()) PagePool::give_up(std::move(first));
    log_if_possible([&] {
        const std::string& id = volume_.pool(0).device().info().id;
        LogLine line(spdlog::level::err);
        line.with("export", options_.export_name).with("device", id);
        line.log("export '{}': {} has failed, and {}", options_.export_name, id,
                 why.empty()
                     ? fmt::format("the cache of {} is {} MiB of {} memory from now on",
                                   origin_->name(), pages * volume_.page_size() >> 20, reserve)
                     : "there is no memory for another cache: " + why);
    });
    if (!has_left_) return false;
    const Lock lock(mutex_);
    written_.stop_marking();
    pages_in_memory_ = pages;
    cached_.move_to(volume_.pools() - 1);
    for (std::uint64_t page = 0; page != volume_.pages(); ++page) {
        if (page % pages_at_once == 0) {
            const Unlock unlock(mutex_);  // clients may wait for it
        }
        abandon_unreadable(page);
        cached_.remember(page, true);  // a client may have taken it from the reserve meanwhile
    }
    complete(std::exchange(held_, PageRequests{}), Status::ok);
    return true;
}

bool OriginCache::abandon_unreadable(std::uint64_t page) {
    if (!has_failed_device()) return true;
    failures_.store(1);
    if (!volume_.is_unreadable(page)) return true;
    const bool has_record = written_.contains(page);
    if (has_record && written_.is_in_round(page)) return false;
    // Before the record may end: requests wait there for parts of the page.
    written_.unmap(page, [&] { volume_.unmap(page); });
    // Otherwise the page is as in the origin, and writes in progress fail.
    if (has_record && written_.is_unwritten(page)) {
        if (options_.writes == Writes::back) lose(page);
        complete_all(written_.discard(page, Status::io_error));
        settle(page);
    }
    return true;
}

void OriginCache::lose(std::uint64_t page) {
    set_lost(page, true);
    counters_.errors.add();
    if (std::exchange(is_unsafe_, true)) return;
    transfers_.log_loss(
        "changes that it does not have yet were lost with a device; what they changed cannot "
        "be read, and no flush succeeds before a restart");
}

Status OriginCache::read(std::uint64_t page, Parts parts, const PageRef& to, SlabCopier& copier) {
    if (parts == 0) return Status::ok;
    if (to.device().failed()) return Status::io_error;
    const OriginTransfers::ReadResult result = in_origin_.test(page)
                                                   ? transfers_.read(page, parts, to, copier)
                                                   : transfers_.clear(parts, to, copier);
    const Lock lock(mutex_);
    counters_.read_bytes.add(result.bytes);
    return result.status;
}

Status OriginCache::read_rests(WriteRecords::Fetching& fetching, const PageRef& to,
                               SlabCopier& copier) {
    for (const std::uint64_t cut : fetching.cuts()) {
        if (to.device().failed()) return Status::io_error;
        const bool is_zero = !in_origin_.test(volume_.page_of(cut));
        const OriginTransfers::ReadResult result = transfers_.read_rest(cut, is_zero, to, copier);
        const Lock lock(mutex_);
        counters_.read_bytes.add(result.bytes);
        if (result.status != Status::ok) return result.status;
    }
    fetching.cuts_are_filled();
    return Status::ok;
}

// --- memory --------------------------------------------------------------------------------------

template <typename GetDemand>
Status OriginCache::take(std::uint64_t page, PageRef& out, GetDemand demand) {
    const auto deadline = Clock::now() + patience;
    std::uint32_t tries_without_chance = 0;
    while (true) {
        const bool has_failed = has_failed_device();
        if (has_failed && !leave_device()) return Status::io_error;
        const Status status = volume_.take_page(page, out);
        if (status == Status::io_error && !has_failed && has_failed_device()) continue;
        if (status != Status::no_space) return status;
        const Demand now = demand();
        if (now == Demand::none) return status;
        {
            const PageAllocator::KeepFreed keep(volume_.pool(0).memory());
            if (evict_one()) continue;
        }
        if (now == Demand::expected) return status;
        const bool is_late = Clock::now() > deadline;
        // While another pool asks for memory, this one gets none, but soon may.
        const bool has_chance =
            volume_.mapped_bytes() != 0 || volume_.pool(0).device().lenders().are_asked();
        tries_without_chance = has_chance ? 0 : tries_without_chance + 1;
        if (is_late || tries_without_chance > 1) {
            transfers_.log_error("is not cached",
                                 is_late
                                     ? "no page of its cache becomes free; give it a larger cache"
                                     : "its device has no memory for a page");
            return Status::io_error;
        }
        set_starving(true);  // pages may become free by being written
        std::this_thread::sleep_for(retry_interval);
        set_starving(false);
    }
}

void OriginCache::set_starving(bool is_starving) {
    const Lock lock(mutex_);
    starving_ += is_starving ? 1 : -1;
    if (is_starving && written_.bytes() != 0) changed_.notify_one();
}

void OriginCache::make_room(PageRequest& request) noexcept {
    const Lock lock(mutex_);
    rooms_.push(request);
    changed_.notify_one();
}

void OriginCache::perform_room(PageRequest& request) {
    ++fetching_;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        try {
            PageRef page;
            status = take(request.number, page, [] { return Demand::waiting; });
            if (status == Status::ok) PagePool::give_up(std::move(page));
        } catch (const std::exception&) {
            status = Status::io_error;
        }
    }
    --fetching_;
    complete(request, status);
}

void OriginCache::submit(const CloneRequest& request) noexcept {
    try {
        const Lock lock(mutex_);
        of_clones_.push_back(request);
        changed_.notify_one();
    } catch (const std::exception&) {  // no memory
        complete(*request.request, Status::io_error);
    }
}

void OriginCache::perform_for_clone(const CloneRequest& request, Worker& worker) {
    const std::uint64_t page = request.request->number;
    ++fetching_;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        try {
            status = request.copies ? request.clone->copy_page(page, worker.copier)
                                    : request.clone->make_room_for(page);
        } catch (const std::exception&) {  // no memory, or no channel
            status = Status::io_error;
        }
    }
    --fetching_;
    complete(*request.request, status);
}

std::uint64_t OriginCache::spare_slabs() const {
    const std::uint64_t slabs = cached_.pool() == 0 ? volume_.pool(0).memory().usable_slabs() : 0;
    return slabs - std::min<std::uint64_t>(slabs, 1);
}

bool OriginCache::release_slab() noexcept {
    const Lock lock(mutex_);
    if (is_paused_ || cached_.empty() || spare_slabs() == 0) return false;
    for (std::size_t left = cached_.slabs(); left != 0; --left) {
        if (drop_slab(cached_.next_slab())) return true;
    }
    return false;
}

std::uint64_t OriginCache::lendable() const noexcept {
    const Lock lock(mutex_);
    return spare_slabs() * volume_.pool(0).memory().slabs().numbers().slab_pages() *
           volume_.page_size();
}

bool OriginCache::drop_slab(std::uint32_t slab) {
    PageAllocator& memory = volume_.pool(0).memory();
    if (!cached_.may_drop(slab) || memory.is_draining(slab) || !memory.drain(slab)) return false;
    bool is_dropped = true;
    cached_.for_each(slab, [&](std::uint64_t page) REQUIRES(mutex_) {
        const bool drops = drop_clean(page);
        if (drops) counters_.evicted.add();
        is_dropped = is_dropped && drops;
    });
    if (!is_dropped) memory.stop_draining(slab);
    return is_dropped;
}

bool OriginCache::evict_one() {
    const Lock lock(mutex_);
    while (const auto found = cached_.next_victim()) {
        if (!drop_clean(found->page)) continue;  // a write has begun
        if (found->was_wasted) counters_.wasted.add();
        counters_.evicted.add();
        return true;
    }
    return false;
}

std::uint64_t OriginCache::evict(std::uint64_t pages) {
    {
        const Lock lock(mutex_);
        if (is_paused_) return 0;
        ++working_;  // it is not paused before this has ended
    }
    std::uint64_t evicted = 0;
    while (evicted != pages && evict_one()) ++evicted;
    const Lock lock(mutex_);
    --working_;
    if (is_paused_) changed_.notify_one();  // the flush before a hand-over
    return evicted;
}

bool OriginCache::drop_clean(std::uint64_t page) {
    return !busy_.is_used(page) && written_.unless_written(page, [&] { volume_.unmap(page); });
}

bool OriginCache::drop(std::uint64_t page) {
    const Lock lock(mutex_);
    if (is_paused_) return false;
    if (written_.contains(page)) {
        written_.urge(page);
        changed_.notify_one();
        return false;
    }
    if (!drop_clean(page)) return false;
    counters_.evicted.add();
    return true;
}

}  // namespace gpunbd::storage
