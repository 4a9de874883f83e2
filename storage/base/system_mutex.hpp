// The mutex and the conditions of storage/base/mutex.hpp: those of the standard library. A test
// that explores interleavings (tests/storage/interleaving) replaces this file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/thread_annotations.hpp"

namespace gpunbd {

class CAPABILITY("mutex") Mutex {
 public:
    void lock() ACQUIRE() {
        mutex_.lock();
        set_owner(std::this_thread::get_id());
    }
    void unlock() RELEASE() {
        set_owner({});
        mutex_.unlock();
    }
    // For the analysis, where it cannot see that this is the mutex that the caller holds.
    void assert_held() const ASSERT_CAPABILITY() {
#ifdef GPUNBD_ASSERTIONS
        GPUNBD_ASSERT(owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(),
                      "the caller holds the mutex");
#endif
    }

 private:
    friend class HeldMutex;

    void set_owner([[maybe_unused]] std::thread::id owner) {
#ifdef GPUNBD_ASSERTIONS
        owner_.store(owner, std::memory_order_relaxed);
#endif
    }

    std::mutex mutex_;
#ifdef GPUNBD_ASSERTIONS
    std::atomic<std::thread::id> owner_;
#endif
};

// Adapts a mutex that the thread holds to the standard library's condition variables.
class HeldMutex {
 public:
    explicit HeldMutex(Mutex& mutex) : mutex_(mutex), lock_(mutex.mutex_, std::adopt_lock) {
        mutex_.set_owner({});
    }
    ~HeldMutex() {
        lock_.release();
        mutex_.set_owner(std::this_thread::get_id());
    }
    HeldMutex(const HeldMutex&) = delete;
    HeldMutex& operator=(const HeldMutex&) = delete;

    std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
    Mutex& mutex_;
    std::unique_lock<std::mutex> lock_;
};

// A loop waits until a guarded member has a value: while (busy_) changed_.wait(mutex_). The other
// functions take a predicate, which the analysis checks as a function of its own: it REQUIRES the
// mutex if it reads what that guards.
class Condition {
 public:
    void notify_one() noexcept { condition_.notify_one(); }
    void notify_all() noexcept { condition_.notify_all(); }

    void wait(Mutex& mutex) REQUIRES(mutex) { condition_.wait(HeldMutex(mutex).lock()); }
    // These return what the predicate returned last.
    template <typename Duration, typename Predicate>
    bool wait_for(Mutex& mutex, const Duration& duration, Predicate predicate) REQUIRES(mutex) {
        return condition_.wait_for(HeldMutex(mutex).lock(), duration, std::move(predicate));
    }
    template <typename TimePoint, typename Predicate>
    bool wait_until(Mutex& mutex, const TimePoint& time, Predicate predicate) REQUIRES(mutex) {
        return condition_.wait_until(HeldMutex(mutex).lock(), time, std::move(predicate));
    }

 private:
    std::condition_variable condition_;
};

// Waits end when `stop` is requested, too.
class StoppableCondition {
 public:
    void notify_one() noexcept { condition_.notify_one(); }
    void notify_all() noexcept { condition_.notify_all(); }

    template <typename Predicate>
    bool wait(Mutex& mutex, const std::stop_token& stop, Predicate predicate) REQUIRES(mutex) {
        return condition_.wait(HeldMutex(mutex).lock(), stop, std::move(predicate));
    }
    template <typename Duration, typename Predicate>
    bool wait_for(Mutex& mutex, const std::stop_token& stop, const Duration& duration,
                  Predicate predicate) REQUIRES(mutex) {
        return condition_.wait_for(HeldMutex(mutex).lock(), stop, duration, std::move(predicate));
    }

 private:
    std::condition_variable_any condition_;
};

}  // namespace gpunbd
