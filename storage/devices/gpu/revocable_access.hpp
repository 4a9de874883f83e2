// Which processor accesses the revocable memory of a GPU. Normally the GPU does. While the driver
// moves pages to the host for another program, the CPU does, since an access by the GPU would bring
// the page back. All functions may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>

namespace gpunbd::storage {

class RevocableAccess {
 public:
    using Clock = std::chrono::steady_clock;

    // A copy that takes longer, while the driver also does not answer, waits for pages.
    static constexpr std::chrono::milliseconds stall{10};

    bool by_cpu() const { return by_cpu_.load(std::memory_order_relaxed); }
    void set_by_cpu(bool by_cpu) { by_cpu_.store(by_cpu, std::memory_order_relaxed); }

    // The EvictionWatch asks the driver for the free memory. While the driver moves pages, it may
    // not answer until the other program has all of its memory.
    void query_begins(Clock::time_point now) {
        query_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    }
    void query_ends() { query_.store(0, std::memory_order_relaxed); }
    // A worker's copy of revocable memory on the GPU has not ended for `stall`. The EvictionWatch
    // corrects a wrong conclusion when it has the answer.
    void copy_stalls(Clock::time_point now) {
        const Clock::rep query = query_.load(std::memory_order_relaxed);
        if (query == 0) return;
        const Clock::time_point since{Clock::duration(query)};
        if (now - since >= stall) set_by_cpu(true);
    }

 private:
    std::atomic<bool> by_cpu_{false};
    std::atomic<Clock::rep> query_{0};  // when it began; 0: there is none
};

}  // namespace gpunbd::storage
