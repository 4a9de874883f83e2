// A thread that allocates and clears memory before anybody waits for it, so that a worker which
// makes the first write to a page does not have to.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace gpunbd::storage {

class Provisioner {
 public:
    // `work` is called on the provisioner's own thread after each wake(); several that come while
    // it runs make one more call.
    explicit Provisioner(std::function<void()> work);
    // Waits for a call that is under way.
    ~Provisioner();
    Provisioner(const Provisioner&) = delete;
    Provisioner& operator=(const Provisioner&) = delete;

    // Any thread; does not block.
    void wake();

 private:
    enum class Order { none, work, stop };
    void run();

    const std::function<void()> work_;
    std::atomic<Order> order_{Order::none};
    std::thread thread_;
};

}  // namespace gpunbd::storage
