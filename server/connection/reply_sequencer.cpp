#include "server/connection/reply_sequencer.hpp"

#include <algorithm>

namespace gpunbd::server {

using Form = SequencedReply::Form;
using Place = SequencedReply::Place;

bool ReplySequencer::enter(SequencedReply& reply, Form form) {
    reply.form_ = form;
    reply.place_ = Place::waiting;
    ++unanswered(form);
    if (form == Form::whole) wanting_ = &reply;
    return begin(reply);
}

bool ReplySequencer::begin(SequencedReply& reply) {
    if (reply.form_ == Form::whole && unanswered(Form::chunks) != 0) {
        wait(reply);
        return false;
    }
    reply.place_ = Place::reading;
    return true;
}

bool ReplySequencer::served(SequencedReply& reply) {
    if (reply.place_ == Place::reading) reply.place_ = Place::served;
    if (wanting_ != &reply) return false;
    wanting_ = nullptr;
    return true;
}

bool ReplySequencer::hold(SequencedReply& reply) {
    const bool may = reply.place_ == Place::served || unanswered(Form::whole) == 1;
    if (holder_ == &reply || (holder_ == nullptr && may)) {
        holder_ = &reply;
        return true;
    }
    wait(reply);
    return false;
}

bool ReplySequencer::leave(SequencedReply& reply) {
    --unanswered(reply.form_);
    const bool takes_again = served(reply);
    reply.place_ = Place::outside;
    if (!waiting_.empty()) std::erase(waiting_, &reply);
    if (holder_ == &reply) holder_ = nullptr;
    return takes_again;
}

void ReplySequencer::resume_in_order() {
    to_resume_ = waiting_.size();
    if (resuming_) return;  // called by one of those, as the next would be: the loop goes on
    resuming_ = true;
    while (to_resume_ != 0 && !waiting_.empty() && holder_ == nullptr) {
        --to_resume_;
        SequencedReply& next = *waiting_.front();
        waiting_.erase(waiting_.begin());
        next.resume();  // it may be told to wait again, and then comes last
    }
    resuming_ = false;
}

void ReplySequencer::wait(SequencedReply& reply) {
    if (std::find(waiting_.begin(), waiting_.end(), &reply) == waiting_.end()) {
        waiting_.push_back(&reply);
    }
}

void ReplySequencer::clear() {
    holder_ = nullptr;
    waiting_.clear();
}

}  // namespace gpunbd::server
