// Takes the place of storage/base/system_mutex.hpp: the mutex and the conditions of the scheduler.
#pragma once

#include "storage/base/thread_annotations.hpp"
#include "tests/storage/interleaving/scheduler.hpp"

namespace gpunbd {

class CAPABILITY("mutex") Mutex {
 public:
    void lock() ACQUIRE() { interleaving::lock(*this); }
    void unlock() RELEASE() { interleaving::unlock(*this); }
    void assert_held() const ASSERT_CAPABILITY() {}
};

class Condition {
 public:
    void notify_one() noexcept { interleaving::notify(this); }  // wakes all: any of them may be it
    void notify_all() noexcept { interleaving::notify(this); }

    void wait(Mutex& mutex) REQUIRES(mutex) { interleaving::wait(this, mutex); }
    // The time ends only once another fiber has changed something.
    template <typename Duration, typename Predicate>
    bool wait_for(Mutex& mutex, const Duration&, Predicate predicate) REQUIRES(mutex) {
        mutex.unlock();
        interleaving::yield(true);
        mutex.lock();
        return predicate();
    }
};

}  // namespace gpunbd
