#include "storage/pages/page_returns.hpp"

#include <utility>

namespace gpunbd::storage {

void PageReturns::put(PageRequest& request) {
    // The worker may end as soon as it has the last request: until then this lock keeps it.
    const std::lock_guard lock(mutex_);
    answered_.push(request);
    any_.store(true, std::memory_order_release);
    if (wake_) wake_();
}

void PageReturns::deliver() {
    PageRequests answered;
    {
        const std::lock_guard lock(mutex_);
        answered = std::exchange(answered_, PageRequests{});
        any_.store(false, std::memory_order_release);
    }
    while (PageRequest* const request = answered.pop()) {
        request->under_way = false;
        --under_way_;
        request->asker->page_answered();
    }
}

}  // namespace gpunbd::storage
