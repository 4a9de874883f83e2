// The thread of a page pool that asks the device: it maps what has to be allocated or cleared
// first, and where that takes long it does so before anybody waits for it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace gpunbd::storage {

class Provisioner {
 public:
    // `work` is called on the provisioner's own thread after each wake(); several that come while
    // it runs make one more call. The thread begins with the first.
    explicit Provisioner(std::function<void()> work) : work_(std::move(work)) {}
    ~Provisioner() { end(); }
    Provisioner(const Provisioner&) = delete;
    Provisioner& operator=(const Provisioner&) = delete;

    // Any thread; does not block. False: the system refuses a thread.
    bool wake() noexcept;
    // The thread begins now. False: the system refuses one.
    bool begin() noexcept;
    // Waits for a call that is under way. Nobody wakes it any more.
    void end();

 private:
    enum class Order { none, work, stop };
    void run();

    const std::function<void()> work_;
    std::atomic<Order> order_{Order::none};
    std::atomic<bool> begun_{false};
    std::mutex beginning_;
    std::thread thread_;
};

}  // namespace gpunbd::storage
