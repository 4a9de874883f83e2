// How many slabs of a device are about to be released. Who finds no memory there waits for them
// before it says so.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace gpunbd::storage {

class PendingReleases {
 public:
    void begin() {
        const std::lock_guard lock(mutex_);
        ++pending_;
    }
    // It has been released, or is needed after all.
    void end() {
        {
            const std::lock_guard lock(mutex_);
            --pending_;
            ++ended_;
        }
        changed_.notify_all();
    }

    // False: there is none. True: one has ended, or some time has passed, in which the caller may
    // have got some to release itself.
    bool wait_for_one() {
        std::unique_lock lock(mutex_);
        if (pending_ == 0) return false;
        const std::uint64_t before = ended_;
        changed_.wait_for(lock, std::chrono::milliseconds(10), [&] { return ended_ != before; });
        return true;
    }

 private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t pending_ = 0;
    std::uint64_t ended_ = 0;
};

}  // namespace gpunbd::storage
