// Mutexes with annotations that clang checks at compile time (-Wthread-safety): a GUARDED_BY member
// may only be accessed, and a REQUIRES function may only be called, while the thread holds the
// mutex. Other compilers ignore the annotations.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "storage/assertions/assert.hpp"

#if defined(__clang__)
#define GPUNBD_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define GPUNBD_THREAD_SAFETY(attribute)
#endif

#define CAPABILITY(name) GPUNBD_THREAD_SAFETY(capability(name))
#define SCOPED_CAPABILITY GPUNBD_THREAD_SAFETY(scoped_lockable)
#define GUARDED_BY(mutex) GPUNBD_THREAD_SAFETY(guarded_by(mutex))
#define REQUIRES(...) GPUNBD_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) GPUNBD_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) GPUNBD_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GPUNBD_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(...) GPUNBD_THREAD_SAFETY(assert_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(mutex) GPUNBD_THREAD_SAFETY(lock_returned(mutex))
#define NO_THREAD_SAFETY_ANALYSIS GPUNBD_THREAD_SAFETY(no_thread_safety_analysis)

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

// Holds the mutex, except between unlock() and lock().
class SCOPED_CAPABILITY Lock {
 public:
    explicit Lock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex.lock(); }
    ~Lock() RELEASE() {
        if (holds_) mutex_.unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    void unlock() RELEASE() {
        GPUNBD_ASSERT(holds_, "a thread releases a mutex that it holds");
        holds_ = false;
        mutex_.unlock();
    }
    void lock() ACQUIRE() {
        GPUNBD_ASSERT(!holds_, "a thread does not wait for a mutex that it holds");
        mutex_.lock();
        holds_ = true;
    }

 private:
    Mutex& mutex_;
    bool holds_ = true;
};

// The reverse of Lock: releases the mutex, and acquires it again at the end of the scope.
class SCOPED_CAPABILITY Unlock {
 public:
    explicit Unlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex.unlock(); }
    ~Unlock() RELEASE() { mutex_.lock(); }
    Unlock(const Unlock&) = delete;
    Unlock& operator=(const Unlock&) = delete;

 private:
    Mutex& mutex_;
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
