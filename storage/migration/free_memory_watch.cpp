#include "storage/migration/free_memory_watch.hpp"

#include <pthread.h>

#include <algorithm>

#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

namespace {

// After an attempt that freed too little.
constexpr std::chrono::seconds shortage_retry_interval{1};
// Pages return only when so much more is free, so that they do not leave again at once.
constexpr std::uint64_t least_margin = 64 << 20;  // bytes
// Free memory counts as falling for so long after it fell by more than this between two looks.
constexpr std::chrono::seconds falling_time{1};
constexpr std::uint64_t noticeable = 8 << 20;  // bytes

std::uint64_t margin_of(std::uint64_t keep_free) { return std::max(least_margin, keep_free / 4); }

}  // namespace

RevocableWatch::~RevocableWatch() {
    {
        const Lock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    migrator_.cancel();
    if (thread_.joinable()) thread_.join();
}

void RevocableWatch::start() {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "revocable watch");
}

void RevocableWatch::run() {
    const Lock lock(mutex_);
    while (!stopping_) {
        {
            const Unlock unlock(mutex_);
            look();
        }
        changed_.wait_for(mutex_, interval_, [this]() REQUIRES(mutex_) { return stopping_; });
    }
}

void RevocableWatch::look() {
    const std::uint64_t excess = device_.use(0).revocable_excess;
    if (excess == 0) return shortage_log_.reset();
    const auto result = migrator_.give_up_revocable(excess);
    if (!result) return;
    shortage_log_.report(device_, *result, "the host could not take all revocable memory");
    if (result->released == 0) return;
    log_if_possible([&] {
        LogLine(spdlog::level::info)
            .with("device", device_.info().id)
            .with("bytes", result->released)
            .log("{}: {} MiB are not revocable any more, because the host is short of memory",
                 device_.info().id, result->released >> 20);
    });
}

FreeMemoryWatch::~FreeMemoryWatch() {
    {
        const Lock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    migrator_.cancel();
    if (thread_.joinable()) thread_.join();
}

void FreeMemoryWatch::start() {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "memory watch");
}

void FreeMemoryWatch::set_keep_free(std::uint64_t bytes) {
    {
        const Lock lock(mutex_);
        keep_free_ = bytes;
    }
    changed_.notify_all();
}

void FreeMemoryWatch::hold(bool held) {
    {
        const Lock lock(mutex_);
        held_ = held;
    }
    changed_.notify_all();
}

void FreeMemoryWatch::run() {
    std::uint64_t free_before = 0;
    Clock::time_point fell_at;
    Lock lock(mutex_);
    while (!stopping_) {
        if (keep_free_ == 0) {
            changed_.wait(mutex_);
            continue;
        }
        const std::uint64_t keep_free = keep_free_;
        const bool held = held_;
        lock.unlock();
        const std::uint64_t free = device_.free_memory();
        const auto now = Clock::now();
        if (free + noticeable < free_before) fell_at = now;
        // A program takes memory in pieces, with pauses.
        const bool falling = now - fell_at < falling_time;
        free_before = free;
        const std::uint64_t enough = keep_free + margin_of(keep_free);
        if (free <= enough || held) surplus_since_.reset();
        if (free < keep_free) {
            // While another program takes memory, a little more is freed, or each request would
            // only replace what was taken during the one before.
            free_memory((falling ? enough : keep_free) - free);
        } else if (free > enough && !held) {
            return_pages(free - enough);
        }
        lock.lock();
        changed_.wait_for(mutex_, falling ? falling_interval : interval,
                          [&]() REQUIRES(mutex_) { return stopping_ || keep_free_ != keep_free; });
    }
}

void FreeMemoryWatch::free_memory(std::uint64_t missing) {
    if (Clock::now() < next_attempt_) return;
    const auto result = migrator_.reclaim(missing);
    if (result && shortage_log_.report(device_, *result,
                                       "other programs have less free memory than keep_free")) {
        next_attempt_ = Clock::now() + shortage_retry_interval;
    }
}

void FreeMemoryWatch::return_pages(std::uint64_t surplus) {
    shortage_log_.reset();
    if (device_.budget().limit() == SlabBudget::unlimited) return;
    const auto now = Clock::now();
    if (!surplus_since_) surplus_since_ = now;
    if (now - *surplus_since_ < settling_time) return;
    migrator_.return_pages(surplus);
}

}  // namespace gpunbd::storage
