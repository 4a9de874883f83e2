// The completed page requests of one worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/page_request.hpp"

namespace gpunbd::storage {

class PageCompletions {
 public:
    // `wake` makes the worker call deliver() soon. It may be called from any thread and does not
    // throw. Empty: the worker polls.
    explicit PageCompletions(std::function<void()> wake) : wake_(std::move(wake)) {}
    PageCompletions(const PageCompletions&) = delete;
    PageCompletions& operator=(const PageCompletions&) = delete;

    // For the worker: a request is about to be submitted to a provisioner.
    void begin(PageRequest& request) {
        GPUNBD_ASSERT(!request.in_progress, "a request is answered before it is made again");
        GPUNBD_ASSERT(request.waiter != nullptr, "the answer to a request has a receiver");
        request.in_progress = true;
        request.completions = this;
        ++in_progress_;
    }
    // For the worker: the request is not submitted after all.
    void cancel(PageRequest& request) {
        GPUNBD_ASSERT(request.in_progress && in_progress_ != 0,
                      "only a request that was begun ends");
        request.in_progress = false;
        --in_progress_;
    }
    std::uint32_t in_progress() const { return in_progress_; }
    bool any() const { return any_.load(std::memory_order_acquire); }
    // Notifies the waiters of completed requests.
    void deliver();

    // For the provisioner: the request is complete and belongs to the worker again.
    void put(PageRequest& request);

 private:
    const std::function<void()> wake_;
    std::uint32_t in_progress_ = 0;
    std::atomic<bool> any_{false};
    Mutex mutex_;
    PageRequests answered_ GUARDED_BY(mutex_);
};

// All of them are complete, with this status.
void complete(PageRequests requests, Status status);

}  // namespace gpunbd::storage
