#include "server/nbd/reply_sequencer.hpp"

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

bool ReplySequencer::hold(Reply& reply) {
    GPUNBD_ASSERT(reply.form_ == Reply::Form::whole, "only a whole reply holds the stream");
    const bool may = needs_memory_ != &reply || unanswered(Reply::Form::whole) == 1;
    if (holder_ == &reply || (holder_ == nullptr && may)) {
        holder_ = &reply;
        return true;
    }
    wait(reply);
    return false;
}

void ReplySequencer::resume_in_order() {
    to_resume_ = waiting_.size();
    if (resuming_) return;  // called from resume() below: that loop continues
    resuming_ = true;
    while (to_resume_ != 0 && !waiting_.empty() && holder_ == nullptr) {
        --to_resume_;
        Reply& next = waiting_.front();
        waiting_.pop_front();
        next.resume();  // if it has to wait again, it is appended
    }
    resuming_ = false;
}

void ReplySequencer::wait(Reply& reply) {
    if (!reply.waiting_.is_linked()) waiting_.push_back(reply);
}

void ReplySequencer::clear() {
    unanswered_ = {};
    needs_memory_ = holder_ = nullptr;
    waiting_.clear();
}

}  // namespace gpunbd::server
