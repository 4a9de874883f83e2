// The thread of a page pool that calls the device: it maps pages that have to be allocated or
// cleared first. On slow devices it prepares pages ahead of need.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

class Provisioner {
 public:
    // The thread calls `work` after each wake(). Calls of wake() while it runs cause one more call.
    // The first wake() starts the thread.
    explicit Provisioner(std::function<void()> work) : work_(std::move(work)) {}
    ~Provisioner() { stop(); }
    Provisioner(const Provisioner&) = delete;
    Provisioner& operator=(const Provisioner&) = delete;

    // Any thread; does not block. Returns false if the system refuses a thread.
    bool wake() noexcept;
    // Starts the thread now. Returns false if the system refuses one.
    bool start() noexcept;
    // Waits for a call in progress. wake() must not be called any more.
    void stop();

 private:
    enum class Order { none, work, stop };
    void run();

    const std::function<void()> work_;
    std::atomic<Order> order_{Order::none};
    std::atomic<bool> started_{false};
    Mutex start_mutex_;
    std::thread thread_;
};

}  // namespace gpunbd::storage
