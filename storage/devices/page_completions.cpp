#include "storage/devices/page_completions.hpp"

#include <utility>

namespace gpunbd::storage {

void PageCompletions::put(PageRequest& request) {
    // The worker may end once it has the last request. It takes this lock first.
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
        request->in_progress = false;
        --in_progress_;
        request->waiter->page_ready();
    }
}

}  // namespace gpunbd::storage
