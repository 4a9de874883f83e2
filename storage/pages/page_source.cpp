#include "storage/pages/page_source.hpp"

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

namespace {

// A thread that waits until a request of it is complete.
class BlockingRequest final : public PageWaiter {
 public:
    // The request is to be submitted.
    PageRequest& begin() {
        request_.waiter = this;
        completions_.begin(request_);
        return request_;
    }
    Status wait() {
        while (!is_done_) {
            await_wakeup();
            completions_.deliver();
        }
        return request_.status;
    }

 private:
    void page_ready() override { is_done_ = true; }
    void wake() EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        is_woken_ = true;
        woken_.notify_one();
    }
    void await_wakeup() EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        while (!is_woken_) woken_.wait(mutex_);
        is_woken_ = false;
    }

    Mutex mutex_;
    Condition woken_;
    bool is_woken_ GUARDED_BY(mutex_) = false;
    bool is_done_ = false;
    PageRequest request_;
    PageCompletions completions_{[this] { wake(); }};
};

}  // namespace

Status PageCache::flush_now() {
    SourceRequest its;
    BlockingRequest blocking;
    flush(its, blocking.begin());
    return blocking.wait();
}

}  // namespace gpunbd::storage
