// What takes long, while it does: memory that is made ready or taken over, a device that is
// measured, a server that ends. Whoever does it tells how far it is, and whoever wants to know asks
// for all of it.
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

    // `what` and `unit` are literals: "provisioning", "bytes". `of`: a device, an export. `total`:
    // 0 where it is not known.
    LongWork(const char* what, std::string of, std::uint64_t total, const char* unit);
    ~LongWork();
    LongWork(const LongWork&) = delete;
    LongWork& operator=(const LongWork&) = delete;

    void set_done(std::uint64_t done) { done_.store(done, std::memory_order_relaxed); }

    struct Seen {
        const char* what = "";
        std::string of;
        std::uint64_t done = 0;
        std::uint64_t total = 0;
        const char* unit = "";
        Clock::time_point began;
    };
    // All of this process, the oldest first. Any thread.
    static std::vector<Seen> under_way();

 private:
    const char* const what_;
    const std::string of_;
    const std::uint64_t total_;
    const char* const unit_;
    const Clock::time_point began_ = Clock::now();
    std::atomic<std::uint64_t> done_{0};
};

}  // namespace gpunbd::storage
