// An operation: one valid request on its way through a volume, from the gate to the last byte of
// its answer. It lives in its worker's pool and belongs to its connection until
// OperationContext::ended().
#pragma once

#include <algorithm>
#include <boost/intrusive/list_hook.hpp>

#include "protocol/gate.hpp"
#include "server/nbd/command_cost.hpp"
#include "server/nbd/operation_context.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

struct OperationPools;

class Operation : public storage::TransferOwner,
                  public Reply,
                  public boost::intrusive::list_base_hook<> {
 public:
    ~Operation() override = default;
    Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // The operation may have ended, and be in its pool, when this returns.
    void start(OperationContext& context, const protocol::Command& command) {
        GPUNBD_ASSERT(state() == RequestState::idle, "an operation that starts was in its pool");
        context_ = &context;
        command_ = command;
        waits.begin(std::max(now(), received_at));
        begin();
    }
    // The connection has closed and its send queue is empty. The operation ends as soon as no copy
    // of its own is in flight.
    virtual void abandon() = 0;
    // After OperationContext::ended().
    void return_to(OperationPools& pools) {
        become(RequestState::idle);
        give_back_to(pools);
    }

    const protocol::Command& command() const { return command_; }
    storage::Range range() const { return {command_.offset, command_.length}; }

    storage::TraceClock::time_point received_at;
    RequestTiming timing = RequestTiming::none;
    CommandCost cost;

 protected:
    virtual void begin() = 0;
    virtual void moved() = 0;
    virtual void give_back_to(OperationPools& pools) = 0;

    storage::TraceClock::time_point now() const {
        return context_->transfer_context().channels.now();
    }
    // All of the answer is ready.
    void answered() {
        become(RequestState::answered);
        context_->accounting().answered(*this);
    }
    // No answer will be queued, unless it is already.
    void give_up_answer() {
        if (state() != RequestState::answered && state() != RequestState::abandoned) {
            become(RequestState::abandoned);
        }
    }
    // Answers without payload.
    void succeed();
    // `at`: the offset where a READ failed, if it is known.
    void fail(storage::Status status, std::optional<std::uint64_t> at = {});
    void answer_with(storage::Status status) {
        status == storage::Status::ok ? succeed() : fail(status);
    }

    OperationContext* context_ = nullptr;
    protocol::Command command_;

 private:
    void sent() override {}
    void resume() override {}
    // An exception here ends this connection, not the worker that polls the channels.
    void transfer_moved(storage::Transfer&) final;
};

}  // namespace gpunbd::server
