// An operation: one admitted request on its way through a volume, from its gate to its last reply
// byte. It lives in its worker's pool and belongs to its session until it has finished.
#pragma once

#include "protocol/gate.hpp"
#include "storage/transfer.hpp"

namespace gpunbd::server {

class Session;

class Operation : public storage::TransferOwner {
 public:
    virtual ~Operation() = default;
    Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // The last byte of an item it put into the outbox has gone.
    virtual void sent() {}
    // The stream that another operation held is free (Outbox::hold).
    virtual void resume() {}
    // The client is gone and nothing of the operation is in the outbox any more. It finishes as
    // soon as no copy of its own is in flight.
    virtual void abandon() = 0;

    const protocol::Command& command() const { return command_; }

 protected:
    void attach(Session& session, const protocol::Command& command) {
        session_ = &session;
        command_ = command;
        abandoned_ = false;
    }

    Session* session_ = nullptr;
    protocol::Command command_;
    bool abandoned_ = false;

 private:
    friend class Session;
    storage::TraceClock::time_point received_at_;  // only with a trace
    Operation* next_ = nullptr;                    // the session's list of live operations
    Operation* previous_ = nullptr;
};

}  // namespace gpunbd::server
