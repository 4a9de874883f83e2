#pragma once

#include <coroutine>
#include <optional>
#include <string>
#include <utility>

#include "protocol/reply_encoder.hpp"
#include "server/nbd/failure_log.hpp"
#include "server/nbd/request_accounting.hpp"
#include "server/nbd/scheduler.hpp"
#include "server/nbd/send_queue.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/transfers/transfer.hpp"

namespace gpunbd::server {

// Wakes a connection: either its coroutine, which waits in one of the awaitables below, or a flush
// of its queue.
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
    // The connection has a turn.
    void flush_soon() noexcept { scheduler_.run_soon(connection_); }
    // As resume(), and as flush_soon(), from an event of the socket.
    void socket_ready() noexcept {
        resumed_ = true;
        flush_now();
    }
    void flush_now() noexcept { scheduler_.run_at_event(connection_); }
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
        scheduler_.run_soon(connection_);
        return {*this, false};
    }
    // The same before work that takes as long as hundreds of requests.
    Awaitable long_turn() {
        resumed_ = true;
        scheduler_.run_once_a_round(connection_);
        return {*this, false};
    }
    // Whether take_waiter() returns the coroutine.
    bool resumes() const { return resumed_ && waiter_; }
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

class Operation;

// The part of a connection that operations use: the send queue, the volume, the accounting, and the
// wakeup. ended() is the only callback. Operations do not depend on sockets or sessions.
class OperationContext {
 public:
    OperationContext(const OperationContext&) = delete;
    OperationContext& operator=(const OperationContext&) = delete;

    const storage::TransferContext& transfer_context() const { return *transfer_; }
    // The volume with which MetaContext::dirty compares; null without that context.
    virtual const storage::Volume* related_volume() const = 0;
    const protocol::ReplyEncoder& encoder() const { return encoder_; }
    SendQueue& send_queue() { return send_queue_; }
    RequestAccounting& accounting() { return accounting_; }
    Wakeup& wakeup() { return wakeup_; }

    void add_success(const protocol::Command& command) {
        SendQueue::Item& item = send_queue_.add();
        item.header_length = static_cast<std::uint8_t>(encoder_.success(item.header, command));
    }
    void add_error(const protocol::Refusal& refusal);
    // Counts a failure, and logs it unless it is one of a flood.
    void report_failure(const protocol::Command& command, storage::Status status);

    // Closes the connection at the next safe point, after the queue has been sent.
    void hang_up(const char* reason) {
        hang_up_ = reason;
        end_of_requests_ = true;
    }
    // Closes the connection at the next safe point. The queue may be incomplete and is not
    // sent.
    void run_out_of_memory() noexcept {
        out_of_memory_ = true;
        wakeup_.flush_soon();
    }

    // Memory for payload that the volume has no page for yet. False: the connection or its worker
    // uses too much.
    virtual bool take_buffer_memory(std::uint64_t bytes) = 0;
    virtual void return_buffer_memory(std::uint64_t bytes) = 0;

    // The answer is queued and sent, or not wanted any more, and no copy is in flight: the
    // operation returns to its pool.
    virtual void ended(Operation& operation) = 0;

 protected:
    OperationContext(storage::Histogram* send_trace, Wakeup wakeup, RequestAccounting accounting,
                     std::string peer)
        : send_queue_(send_trace),
          wakeup_(wakeup),
          accounting_(std::move(accounting)),
          failure_log_(std::move(peer)) {}
    ~OperationContext() = default;

    protocol::ReplyEncoder encoder_;
    SendQueue send_queue_;
    std::optional<storage::TransferContext> transfer_;  // from serve() on
    Wakeup wakeup_;
    RequestAccounting accounting_;
    FailureLog failure_log_;
    const char* hang_up_ = nullptr;  // the reason
    bool end_of_requests_ = false;   // no more requests are taken
    bool out_of_memory_ = false;
};

}  // namespace gpunbd::server
