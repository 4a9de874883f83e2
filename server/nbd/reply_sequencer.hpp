// Orders READs whose reply may not be split: nothing else may be sent between the one header and
// the last byte. It decides which reply has the stream to itself and which READ starts when, so
// that no READ waits for staging memory that is held by READs which wait for the stream.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>

#include "server/nbd/reply.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

// Invariants:
// - A whole reply starts only while no reply in chunks is unanswered, since those keep needing
//   memory.
// - While a whole reply needs memory, no further request is taken (takes_requests()). So there is
//   at most one such reply, and those before it can be answered without it.
// - Only the holder of the stream sends between its header and its last byte.
class ReplySequencer {
 public:
    // Counts the reply as unanswered. begin() follows.
    void enter(Reply& reply, Reply::Form form) {
        GPUNBD_ASSERT(!reply.waiting_.is_linked(), "a reply that is entered does not wait");
        GPUNBD_ASSERT(form == Reply::Form::chunks || takes_requests(),
                      "no request is taken while a whole reply needs memory");
        reply.form_ = form;
        ++unanswered(form);
        if (form == Reply::Form::whole) needs_memory_ = &reply;
    }
    // false: the reply may not start yet, and is resumed to try again.
    bool begin(Reply& reply) {
        if (reply.form_ == Reply::Form::chunks || unanswered(Reply::Form::chunks) == 0) return true;
        wait(reply);
        return false;
    }
    // The reply has all the memory that it needs. true: requests may be taken again.
    bool staged(const Reply& reply) {
        if (needs_memory_ != &reply) return false;
        needs_memory_ = nullptr;
        return true;
    }
    // Gives the stream to a whole reply that takes more than one send. false: another reply has it,
    // or this one might wait for memory while it had it; it is resumed.
    bool hold(Reply& reply);
    // The reply has queued its last byte. true: requests may be taken again. The caller calls
    // resume_waiting() next.
    bool leave(Reply& reply) {
        --unanswered(reply.form_);
        if (holder_ == &reply) holder_ = nullptr;
        reply.waiting_.unlink();
        return staged(reply);
    }
    // Replies that had to wait try again, in order, until one holds the stream.
    void resume_waiting() {
        if (!waiting_.empty()) resume_in_order();
    }

    // True if what `reply` (null: a reply without an order) adds must wait behind the holder.
    bool held_by_other(const Reply* reply) const { return holder_ != nullptr && holder_ != reply; }
    bool takes_requests() const { return needs_memory_ == nullptr; }
    // Forgets all replies without notifying them.
    void clear();

 private:
    std::uint32_t& unanswered(Reply::Form form) {
        return unanswered_[static_cast<std::size_t>(form)];
    }
    void wait(Reply& reply);
    void resume_in_order();

    std::array<std::uint32_t, 2> unanswered_{};  // by form
    const Reply* needs_memory_ = nullptr;  // the whole reply that does not have all its memory
    const Reply* holder_ = nullptr;
    boost::intrusive::list<
        Reply, boost::intrusive::member_hook<Reply, decltype(Reply::waiting_), &Reply::waiting_>,
        boost::intrusive::constant_time_size<false>>
        waiting_;
    std::size_t to_resume_ = 0;  // the first ones of waiting_
    bool resuming_ = false;
};

}  // namespace gpunbd::server
