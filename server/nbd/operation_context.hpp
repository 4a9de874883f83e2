// The part of a connection that operations use: the send queue, the volume, the accounting, and the
// wakeup. ended() is the only callback. Operations do not depend on sockets or sessions.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "protocol/reply_encoder.hpp"
#include "server/nbd/failure_log.hpp"
#include "server/nbd/request_accounting.hpp"
#include "server/nbd/send_queue.hpp"
#include "server/nbd/wakeup.hpp"
#include "storage/transfers/transfer.hpp"

namespace gpunbd::server {

class Operation;

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
