// Progress of operations that take long: allocating or taking over memory, calibrating a device,
// shutting down. Any thread can list all operations in progress.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gpunbd::storage {

class LongWork {
 public:
    using Clock = std::chrono::steady_clock;

    // `what` and `unit` are literals, such as "provisioning" and "bytes". `of` is a device or an
    // export. `total` is 0 if it is unknown.
    LongWork(const char* what, std::string of, std::uint64_t total, const char* unit);
    ~LongWork();
    LongWork(const LongWork&) = delete;
    LongWork& operator=(const LongWork&) = delete;

    void set_done(std::uint64_t done) { done_.store(done, std::memory_order_relaxed); }

    struct Progress {
        const char* what = "";
        std::string of;
        std::uint64_t done = 0;
        std::uint64_t total = 0;
        const char* unit = "";
        Clock::time_point began;
    };
    // All operations of this process, the oldest first. Any thread.
    static std::vector<Progress> in_progress();

 private:
    const char* const what_;
    const std::string of_;
    const std::uint64_t total_;
    const char* const unit_;
    const Clock::time_point began_ = Clock::now();
    std::atomic<std::uint64_t> done_{0};
};

}  // namespace gpunbd::storage
