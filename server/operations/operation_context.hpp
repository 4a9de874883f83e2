// The few things that an operation may ask of the connection that it serves. Operations know
// neither sockets nor sessions.
#pragma once

#include <cstdint>
#include <optional>

#include "protocol/reply_encoder.hpp"
#include "server/connection/send_queue.hpp"
#include "storage/transfers/transfer.hpp"

namespace gpunbd::server {

class Operation;

class OperationContext {
 public:
    OperationContext(const OperationContext&) = delete;
    OperationContext& operator=(const OperationContext&) = delete;

    // What its transfer works with.
    virtual storage::TransferContext transfer_context() = 0;
    const protocol::ReplyEncoder& encoder() const { return encoder_; }
    SendQueue& send_queue() { return send_queue_; }

    // Queue a reply that has no payload.
    void succeed(const Operation& operation);
    // `at`: the offset where a READ failed, if that is known.
    void fail(const Operation& operation, storage::Status status,
              std::optional<std::uint64_t> at = {});

    // The answer is queued, or not wanted any more: the operation goes back to its pool.
    virtual void finish(Operation& operation) = 0;
    // What had come of a WRITE that was cut short has failed, and that was its answer.
    virtual void lose_half_write() = 0;
    // All of its answer is ready. Once, unless it is abandoned.
    virtual void answered(Operation& operation) = 0;
    // It is counted, and told in one line in the log, but not one for each of a flood.
    virtual void report_failure(const Operation& operation, storage::Status status) = 0;
    // Once the channels have been polled, what is queued is sent.
    virtual void flush_soon() = 0;
    // What kept requests or payload from being taken may be over.
    virtual void resume_receiving() noexcept = 0;
    // The connection cannot be saved: it is closed at the next safe point.
    virtual void hang_up(const char* reason) = 0;
    // The same, but not even what is queued is sent: some of it may be missing.
    virtual void run_out_of_memory() noexcept = 0;

 protected:
    explicit OperationContext(storage::Histogram* trace) : send_queue_(trace) {}
    ~OperationContext() = default;

    void add_header(const protocol::ReplyHeader& header, std::size_t length);
    void add_error(const protocol::Refusal& refusal);

    protocol::ReplyEncoder encoder_;
    SendQueue send_queue_;
};

}  // namespace gpunbd::server
