#include "storage/pages/page_source.hpp"

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

Status PageCache::flush_now() {
    struct Waiter final : PageWaiter {
        void page_ready() override { is_done = true; }
        bool is_done = false;
    };
    Mutex mutex;
    Condition woken;
    bool is_woken = false;  // guarded by `mutex`
    Waiter waiter;
    PageCompletions completions([&] {
        const Lock lock(mutex);
        is_woken = true;
        woken.notify_one();
    });
    SourceRequest its;
    PageRequest request;
    request.waiter = &waiter;
    completions.begin(request);
    flush(its, request);
    while (!waiter.is_done) {
        {
            const Lock lock(mutex);
            while (!is_woken) woken.wait(mutex);
            is_woken = false;
        }
        completions.deliver();
    }
    return request.status;
}

}  // namespace gpunbd::storage
