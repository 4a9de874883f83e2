// Mutexes with annotations that clang checks at compile time (-Wthread-safety): a GUARDED_BY member
// may only be accessed, and a REQUIRES function may only be called, while the thread holds the
// mutex.
#pragma once

#include "storage/assertions/assert.hpp"
#include "storage/base/system_mutex.hpp"
#include "storage/base/thread_annotations.hpp"

namespace gpunbd {

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

}  // namespace gpunbd
