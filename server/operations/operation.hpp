// An operation: one valid request on its way through a volume, from its gate to its last reply
// byte. It lives in its worker's pool and belongs to its connection until it has finished.
#pragma once

#include <boost/intrusive/list_hook.hpp>

#include "protocol/gate.hpp"
#include "server/operations/operation_context.hpp"

namespace gpunbd::server {

struct OperationPools;

class Operation : public storage::TransferOwner,
                  public SendQueue::Sender,
                  public boost::intrusive::list_base_hook<> {
 public:
    virtual ~Operation() = default;
    Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // Begins; it may have finished, and be gone, when this returns.
    void start(OperationContext& context, const protocol::Command& command) {
        context_ = &context;
        command_ = command;
        abandoned_ = false;
        begin();
    }
    // The client is gone and nothing of the operation is queued any more. It finishes as soon as no
    // copy of its own is in flight.
    virtual void abandon() = 0;
    virtual void return_to(OperationPools& pools) = 0;

    void sent() override {}
    // What goes wrong here ends this connection, not the worker that polls the channels.
    void transfer_moved(storage::Transfer&) final;

    const protocol::Command& command() const { return command_; }
    storage::Range range() const { return {command_.offset, command_.length}; }

    storage::TraceClock::time_point received_at;
    std::uint64_t charged = 0;  // bytes of the worker's budget
    bool answered = false;

 protected:
    virtual void begin() = 0;
    virtual void moved() = 0;

    OperationContext* context_ = nullptr;
    protocol::Command command_;
    bool abandoned_ = false;
};

}  // namespace gpunbd::server
