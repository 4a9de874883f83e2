// Where the requests of one worker for pages come back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "storage/pages/page_request.hpp"

namespace gpunbd::storage {

class PageReturns {
 public:
    // `wake` makes the worker call deliver() soon, from any thread; it does not throw. Empty: the
    // worker looks by itself.
    explicit PageReturns(std::function<void()> wake) : wake_(std::move(wake)) {}
    PageReturns(const PageReturns&) = delete;
    PageReturns& operator=(const PageReturns&) = delete;

    // The worker's: a request of its goes to a provisioner.
    void leaves(PageRequest& request) {
        request.under_way = true;
        request.returns = this;
        ++under_way_;
    }
    std::uint32_t under_way() const { return under_way_; }
    bool any() const { return any_.load(std::memory_order_acquire); }
    // Tells those whose requests have come back.
    void deliver();

    // A provisioner's: the request is answered, and not its any more.
    void put(PageRequest& request);

 private:
    const std::function<void()> wake_;
    std::uint32_t under_way_ = 0;
    std::atomic<bool> any_{false};
    std::mutex mutex_;  // guards what follows
    PageRequests answered_;
};

}  // namespace gpunbd::storage
