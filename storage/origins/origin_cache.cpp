#include "storage/origins/origin_cache.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/origins/origin_clone.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

// Without any progress. An origin on another server may come back meanwhile.
constexpr std::chrono::seconds patience_at_end{60};

}  // namespace

OriginCache::OriginCache(Volume& volume, std::unique_ptr<Origin> origin, Options options)
    : volume_(volume),
      origin_(std::move(origin)),
      options_(std::move(options)),
      transfers_(volume_, *origin_, options_.export_name),
      pages_in_memory_(volume.pool(0).memory().slabs().config().pages),
      data_(volume.pages()),
      in_origin_(volume.pages()),
      written_(volume, options_.writes == Writes::back ? volume.kept_cache() : KeptCache()),
      fetches_(volume_, data_, busy_, pages_in_memory_),
      cached_(volume_, written_, busy_),
      lost_(volume.pages()) {
    {
        const Lock lock(mutex_);
        std::uint64_t at = 0;
        while (const auto data = origin_->next_data(at)) {
            const std::uint64_t end = volume_.page_of(data->end - 1) + 1;
            for (std::uint64_t page = volume_.page_of(data->begin); page != end; ++page) {
                data_.set(page, true);
                in_origin_.set(page, true);
            }
            at = data->end;
        }
        if (options_.reads_ahead == Ahead::all) fetches_.fill_memory();
        is_paused_ = volume_.is_quiesced();
        has_changed_origin_ = options_.continues && can_be_written_to();
        adopt();
    }
    volume_.pool(0).memory().lend();
    try {
        {
            const Lock lock(mutex_);
            while (started_ != first_workers) start_worker();
        }
        volume_.pool(0).device().lenders().add(*this);
    } catch (...) {
        stop();
        throw;
    }
}

OriginCache::~OriginCache() {
    volume_.pool(0).device().lenders().remove(*this);
    {
        const Lock lock(mutex_);
        is_draining_ = true;
        changed_.notify_all();
        while (const std::uint64_t bytes = is_paused_ ? 0 : written_.bytes()) {
            const auto is_less = [&] { return records_.bytes() < bytes; };
            if (!round_ended_.wait_for(mutex_, patience_at_end, is_less)) break;
        }
    }
    stop();
    std::uint64_t lost = 0;
    bool flushes = false;
    {
        const Lock lock(mutex_);
        if (is_paused_) return;  // another process goes on
        lost = written_.bytes();
        flushes = has_changed_origin_;
    }
    if (flushes) {
        if (const auto why = origin_->flush()) transfers_.log_loss("it cannot be flushed: " + *why);
    }
    if (lost == 0) return;
    const bool is_kept = written_.marks_pages() && volume_.outlives_process();
    transfers_.log_loss(
        fmt::format("{} bytes that clients wrote are {}", lost,
                    is_kept ? "lost, unless a supervisor keeps them for the next server" : "lost"));
}

void OriginCache::stop() {
    {
        const Lock lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_all();
    for (Worker& worker : workers_) {
        if (worker.thread.joinable()) worker.thread.join();
    }
    const Lock lock(mutex_);
    GPUNBD_ASSERT(held_.empty() && rooms_.empty() && zeroes_.empty() && syncs_.empty(),
                  "the requests of clients are answered before a cache ends");
}

PageCache::Unwritten OriginCache::unwritten() const {
    Unwritten out{.bytes = records_.bytes()};
    if (const auto oldest = records_.oldest()) {
        out.age = std::chrono::duration<double>(Clock::now() - *oldest).count();
    }
    return out;
}

// --- the workers ---------------------------------------------------------------------------------

void OriginCache::start_worker() {
    const SignalsBlocked blocked;
    Worker& worker = workers_[started_];
    worker.thread = std::thread([this, &worker] { run(worker); });
    ::pthread_setname_np(worker.thread.native_handle(), "origin");
    ++started_;
}

void OriginCache::run(Worker& worker) noexcept {
    const Lock lock(mutex_);
    while (!is_stopping_) {
        ++working_;
        const auto began = Clock::now();
        const bool has_worked = work(worker);
        --working_;
        if (has_worked) {
            start_another(Clock::now() - began);
            continue;
        }
        // Before it looks at what is unwritten: a write that ends later wakes it.
        waiting_workers_.fetch_add(1);
        wait_for_work();
        waiting_workers_.fetch_sub(1);
    }
}

void OriginCache::start_another(Clock::duration worked) {
    const bool are_busy = waiting_workers_.load() == 0 || fetching_ + 1 >= most_fetching();
    if (worked < long_work || !are_busy || started_ == most_workers || is_stopping_) return;
    try {
        start_worker();
    } catch (const std::exception&) {  // no thread; those that there are do the work
    }
}

bool OriginCache::work(Worker& worker) {
    if (work_on_request(worker)) return true;
    if (is_paused_) {
        if (!has_to_flush_ || working_ != 1) return false;
        is_flushed_ = sync() == Status::ok;
        has_to_flush_ = false;
        return true;
    }
    try {
        return work_ahead(worker);
    } catch (const std::exception&) {  // no memory to read ahead of clients
        fetches_.stop_filling();
        return false;
    }
}

bool OriginCache::work_on_request(Worker& worker) {
    // One worker each, so that they cannot delay the rest.
    if (!is_syncing_ && !syncs_.empty()) return perform_syncs(), true;
    if (!is_zeroing_ && !zeroes_.empty()) return perform_zero(*zeroes_.pop(), worker), true;
    // Half of the workers prefer writes, so that neither reads nor writes wait for all of the
    // other.
    if (rounds_.load() < started_ / 2 && perform_urgent_round(worker)) return true;
    return perform_for_memory(worker) || perform_urgent_round(worker);
}

bool OriginCache::perform_urgent_round(Worker& worker) {
    const auto page = written_.next_urgent([this](std::uint64_t each)
                                               REQUIRES(mutex_) { return may_write(each); });
    if (page) perform_round(*page, worker);
    return page.has_value();
}

// Reads and writes of whole pages take turns.
bool OriginCache::perform_for_memory(Worker& worker) {
    if (fetching_ >= most_fetching()) return false;
    makes_room_next_ = !makes_room_next_;
    const auto fetches = [&]() REQUIRES(mutex_) {
        const auto page = fetches_.next_wanted();
        if (page) perform_fetch(*page, worker);
        return page.has_value();
    };
    if (!makes_room_next_ && fetches()) return true;
    if (!rooms_.empty()) return perform_room(*rooms_.pop()), true;
    if (!of_clones_.empty()) {
        const CloneRequest next = of_clones_.front();
        of_clones_.pop_front();
        return perform_for_clone(next, worker), true;
    }
    return fetches();
}

bool OriginCache::work_ahead(Worker& worker) {
    const bool may_fetch = fetching_ < most_ahead;
    const auto fetches = [&](std::optional<std::uint64_t> page) REQUIRES(mutex_) {
        if (page) perform_fetch(*page, worker);
        return page.has_value();
    };
    if (may_fetch && fetches(fetches_.next_in_sequence())) return true;
    if (rounds_.load() < most_rounds_by_age && writes_now()) {
        const auto page = written_.next_by_age([this](std::uint64_t each)
                                                   REQUIRES(mutex_) { return may_write(each); });
        if (page) return perform_round(*page, worker), true;
    }
    if (!may_fetch) return false;
    const Fetches::Next next = fetches_.next_prefetched();
    if (next.is_more) {
        const Unlock unlock(mutex_);  // clients may wait for it
        return true;
    }
    return fetches(next.page) || fetches(fetches_.next_of_all());
}

void OriginCache::wait_for_work() {
    const auto oldest = written_.oldest();
    if (!oldest || options_.writes != Writes::back || is_paused_) return changed_.wait(mutex_);
    const auto due = has_to_write() ? retry_at_ : std::max(*oldest + options_.max_age, retry_at_);
    const auto now = Clock::now();
    if (due <= now && busy_.is_awaited()) return changed_.wait(mutex_);  // see end_pages()
    bool has_waited = false;
    changed_.wait_until(mutex_, std::max(due, now + retry_interval),
                        [&] { return std::exchange(has_waited, true); });
}

bool OriginCache::may_write(std::uint64_t page) {
    // A zero that waits for a fetch must not prevent what makes room for it.
    return busy_.may_begin(page, starving_ == 0);
}

void OriginCache::end_pages(const Worker& worker) {
    if (!busy_.end(number_of(worker))) return;
    pages_ended_.notify_all();
    changed_.notify_all();
}

}  // namespace gpunbd::storage
