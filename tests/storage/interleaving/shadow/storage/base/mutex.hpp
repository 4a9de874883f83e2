// Takes the place of storage/base/mutex.hpp: locks and conditions are those of the scheduler.
#pragma once

#include "storage/assertions/assert.hpp"
#include "tests/storage/interleaving/scheduler.hpp"

#define CAPABILITY(name)
#define SCOPED_CAPABILITY
#define GUARDED_BY(mutex)
#define REQUIRES(...)
#define EXCLUDES(...)
#define ACQUIRE(...)
#define RELEASE(...)
#define ASSERT_CAPABILITY(...)
#define RETURN_CAPABILITY(mutex)
#define NO_THREAD_SAFETY_ANALYSIS

namespace gpunbd {

class Mutex {
 public:
    void lock() { interleaving::lock(*this); }
    void unlock() { interleaving::unlock(*this); }
    void assert_held() const {}
};

class Lock {
 public:
    explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex.lock(); }
    ~Lock() {
        if (holds_) mutex_.unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    void unlock() {
        GPUNBD_ASSERT(holds_, "a thread releases a mutex that it holds");
        holds_ = false;
        mutex_.unlock();
    }
    void lock() {
        GPUNBD_ASSERT(!holds_, "a thread does not wait for a mutex that it holds");
        mutex_.lock();
        holds_ = true;
    }

 private:
    Mutex& mutex_;
    bool holds_ = true;
};

class Unlock {
 public:
    explicit Unlock(Mutex& mutex) : mutex_(mutex) { mutex.unlock(); }
    ~Unlock() { mutex_.lock(); }
    Unlock(const Unlock&) = delete;
    Unlock& operator=(const Unlock&) = delete;

 private:
    Mutex& mutex_;
};

class Condition {
 public:
    void notify_one() noexcept { interleaving::notify(this); }  // wakes all: any of them may be it
    void notify_all() noexcept { interleaving::notify(this); }

    void wait(Mutex& mutex) { interleaving::wait(this, mutex); }
    // The time ends only once another fiber has changed something.
    template <typename Duration, typename Predicate>
    bool wait_for(Mutex& mutex, const Duration&, Predicate predicate) {
        mutex.unlock();
        interleaving::yield(true);
        mutex.lock();
        return predicate();
    }
};

}  // namespace gpunbd
