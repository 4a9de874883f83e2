// Wakes a connection: either its coroutine, which waits in one of the awaitables below, or a flush
// of its queue.
#pragma once

#include <coroutine>
#include <utility>

#include "server/nbd/scheduler.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

class Wakeup {
 public:
    // When `connection` runs, it sends its queue and then calls take_waiter().
    Wakeup(Scheduler& scheduler, Scheduler::Runnable& connection)
        : scheduler_(scheduler), connection_(connection) {}

    // The condition that blocked the coroutine may have ended.
    void resume() noexcept {
        resumed_ = true;
        if (waiter_) scheduler_.run_soon(connection_);
    }
    // The connection runs once the channels have been polled.
    void flush_soon() noexcept { scheduler_.run_soon(connection_); }
    // As resume(), but the caller resumes take_waiter() itself.
    void set() noexcept { resumed_ = true; }
    // The coroutine is about to check everything that resume() may have announced.
    void clear() { resumed_ = false; }

    struct Awaitable {
        Wakeup& wakeup;
        bool ready;
        bool await_ready() const noexcept { return ready; }
        void await_suspend(std::coroutine_handle<> waiter) const noexcept {
            GPUNBD_ASSERT(!wakeup.waiter_, "a connection has one coroutine, which waits once");
            wakeup.waiter_ = waiter;
        }
        void await_resume() const noexcept { wakeup.resumed_ = false; }
    };
    // Completes at resume(), or at once if that was called since clear().
    Awaitable resumed() { return {*this, resumed_}; }
    // Completes after the other connections that have more to do.
    Awaitable next_turn() {
        resumed_ = true;
        scheduler_.run_in_turn(connection_);
        return {*this, false};
    }
    // The same before work that takes as long as hundreds of requests.
    Awaitable long_turn() {
        resumed_ = true;
        scheduler_.run_once_a_round(connection_);
        return {*this, false};
    }
    // The coroutine to resume now; null: it is not waiting, or nothing has happened.
    std::coroutine_handle<> take_waiter() {
        return resumed_ ? std::exchange(waiter_, {}) : std::coroutine_handle<>();
    }

 private:
    Scheduler& scheduler_;
    Scheduler::Runnable& connection_;
    std::coroutine_handle<> waiter_;
    bool resumed_ = false;
};

}  // namespace gpunbd::server
