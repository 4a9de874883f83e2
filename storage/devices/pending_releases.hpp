// Counts the slabs of a device that are about to be released. An allocation that finds no memory
// waits for them before it fails.
#pragma once

#include <chrono>
#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

class PendingReleases {
 public:
    void begin() {
        const Lock lock(mutex_);
        ++pending_;
    }
    // The slab has been released, or is used again.
    void end() {
        {
            const Lock lock(mutex_);
            GPUNBD_ASSERT(pending_ != 0, "a release is announced before it ends");
            --pending_;
            ++ended_;
        }
        changed_.notify_all();
    }

    // How many releases have ended. Read it before an allocation, and pass it to wait_for_one() if
    // the allocation fails.
    std::uint64_t ended() const {
        const Lock lock(mutex_);
        return ended_;
    }
    // Returns true at once if a release has ended since `before` was read: there may be memory now.
    // Otherwise returns false if no release is pending, and waits until one has ended, or for a
    // short time, since the caller may itself have got slabs to release meanwhile.
    bool wait_for_one(std::uint64_t before) {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(before <= ended_, "the number of releases that have ended only grows");
        if (ended_ != before) return true;
        if (pending_ == 0) return false;
        changed_.wait_for(mutex_, std::chrono::milliseconds(10),
                          [&]() REQUIRES(mutex_) { return ended_ != before; });
        return true;
    }
    // Whether a slab is about to be released.
    bool pending() const {
        const Lock lock(mutex_);
        return pending_ != 0;
    }

 private:
    mutable Mutex mutex_;
    Condition changed_;
    std::uint64_t pending_ GUARDED_BY(mutex_) = 0;
    std::uint64_t ended_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gpunbd::storage
