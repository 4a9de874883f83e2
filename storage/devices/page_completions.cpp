#include "storage/devices/page_completions.hpp"

#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void PageCompletions::put(PageRequest& request) {
    // The worker may end once it has the last request. It takes this lock first.
    GPUNBD_ASSERT(request.completions == this, "a request returns to the worker that made it");
    const Lock lock(mutex_);
    answered_.push(request);
    any_.store(true, std::memory_order_release);
    if (wake_) wake_();
}

void PageCompletions::deliver() {
    PageRequests answered;
    {
        const Lock lock(mutex_);
        answered = std::exchange(answered_, PageRequests{});
        any_.store(false, std::memory_order_release);
    }
    while (PageRequest* const request = answered.pop()) {
        GPUNBD_ASSERT(request->in_progress && in_progress_ != 0, "a request is answered once");
        request->in_progress = false;
        --in_progress_;
        request->waiter->page_ready();
    }
}

void complete(PageRequest& request, Status status) {
    request.status = status;
    request.completions->put(request);
}

void complete(PageRequests requests, Status status) {
    while (PageRequest* const request = requests.pop()) complete(*request, status);
}

}  // namespace gpunbd::storage
