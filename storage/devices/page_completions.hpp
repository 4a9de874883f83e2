#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "storage/assertions/assert.hpp"
#include "storage/base/chained_queue.hpp"
#include "storage/base/mutex.hpp"
#include "storage/base/status.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/devices/page_parts.hpp"

namespace gpunbd::storage {

class PageCompletions;

class PageWaiter {
 public:
    // Called on the worker's thread from PageCompletions::deliver().
    virtual void page_ready() = 0;

 protected:
    ~PageWaiter() = default;
};

// A request to map a page for a hole, or to copy a shared page, when the device has to be called.
// The provisioner of the page pool serves it and returns it to its worker, which does other work
// meanwhile.
// It must not move while it is in progress.
struct PageRequest {
    bool in_progress = false;    // used by the worker
    Status status = Status::ok;  // of the last request; ok: look at the entry again
    bool copies = false;         // a shared page
    std::uint64_t number = 0;    // the page number in the volume
    Parts parts = 0;             // of the page, that are needed, if it is in a source
    EntrySlot slot;
    PageWaiter* waiter = nullptr;
    PageCompletions* completions = nullptr;
    PageRequest* next = nullptr;  // used by the current owner
};

using PageRequests = ChainedQueue<PageRequest>;

// The completed page requests of one worker.
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

// The request is complete, or all of them are, with this status.
void complete(PageRequest& request, Status status);
void complete(PageRequests requests, Status status);

}  // namespace gpunbd::storage
