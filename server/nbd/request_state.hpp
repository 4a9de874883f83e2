// The life of a request from the gate to the last byte of its answer. Every request has exactly one
// of these states, in Reply::state().
#pragma once

#include <boost/intrusive/list_hook.hpp>
#include <cstdint>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

//                     READ                                         WRITE
//
//   start() ----+-- answered in chunks, or alone --+        start() --> receiving --> discarding
//               |                                  |                           |    |          |
//               +--> fetching --+                  |                           |    |          |
//               |               v                  |                           |    |          |
//               +-----------> waiting -------------+--> executing <------------+    |          |
//                                                       |    |                      |          |
//                                          staged <-----+    |                 handed_over     |
//                                            |               |                      |          |
//                                            +--> replying --+--> answered <--------+----------+
//                                                     |
//                                                     +--> broken
//
// A READ that cannot be fetched is answered with an error. Any state becomes `abandoned` when the
// connection closes before the answer is queued. If the transfer of a WRITE fails during execution,
// the WRITE becomes `discarding` as well. A WRITE that is handed over has an answer only if it
// fails. The last state becomes `idle`.
enum class RequestState : std::uint8_t {
    idle,         // in its pool
    fetching,     // READ in one piece: what is not in memory is fetched from the volume's source
    waiting,      // READ in one piece: starts once all READs in chunks have been answered
    receiving,    // WRITE: its payload is arriving
    discarding,   // WRITE: it has failed, and the rest of its payload is dropped
    executing,    // the transfer runs and may need more memory
    staged,       // READ: the transfer has all the memory that it needs
    replying,     // READ: the first reply header is queued, and more data follows
    answered,     // the whole answer is queued
    handed_over,  // WRITE: another process receives the rest of its payload
    broken,     // READ: it failed after the header of its only piece, so the connection must close
    abandoned,  // it gets no answer; copies in flight may still run
};

// The reply of a request in this state may still be added to.
constexpr bool needs_reply(RequestState state) { return state < RequestState::answered; }

// The valid transitions.
constexpr bool may_follow(RequestState from, RequestState to) {
    using enum RequestState;
    switch (from) {
        case idle:
            return to == fetching || to == waiting || to == receiving || to == executing ||
                   to == answered;
        case fetching:
            return to == waiting || to == answered || to == abandoned;
        case waiting:
            return to == executing || to == abandoned;
        case receiving:
            return to == executing || to == discarding || to == handed_over || to == abandoned;
        case discarding:
            return to == answered || to == handed_over || to == abandoned;
        case executing:
            return to == discarding || to == staged || to == replying || to == answered ||
                   to == abandoned;
        case staged:
            return to == replying || to == answered || to == abandoned;
        case replying:
            return to == answered || to == broken || to == abandoned;
        case handed_over:
            return to == answered || to == abandoned || to == idle;
        case broken:
            return to == abandoned || to == idle;
        case answered:
        case abandoned:
            return to == idle;
    }
    return false;
}

// The state of one request.
class RequestLife {
 public:
    RequestState state() const { return state_; }
    void become(RequestState next) {
        GPUNBD_ASSERT(may_follow(state_, next), "a request follows its life, see the drawing");
        state_ = next;
    }

 private:
    RequestState state_ = RequestState::idle;
};

// The interface of a request to the send queue and the reply sequencer: its state, the form of its
// reply, and two notifications.
class Reply {
 public:
    enum class Form : std::uint8_t {
        chunks,  // several pieces, with other replies between them
        whole,   // one header and all of its data, with nothing between them
    };

    // The last byte of one of its items has been sent.
    virtual void sent() = 0;
    // The sequencer had made it wait; it may try again.
    virtual void resume() = 0;

    RequestState state() const { return life_.state(); }
    Form form() const { return form_; }

 protected:
    Reply() = default;
    virtual ~Reply() = default;

    void become(RequestState next) { life_.become(next); }

 private:
    friend class ReplySequencer;
    RequestLife life_;
    Form form_ = Form::chunks;  // set by ReplySequencer::enter()
    boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>
        waiting_;  // linked while the sequencer makes it wait
};

}  // namespace gpunbd::server
