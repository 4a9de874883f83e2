// The interface of a request to the send queue and the reply sequencer: its state, the form of its
// reply, and two notifications.
#pragma once

#include <boost/intrusive/list_hook.hpp>
#include <cstdint>

#include "server/nbd/request_state.hpp"

namespace gpunbd::server {

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
