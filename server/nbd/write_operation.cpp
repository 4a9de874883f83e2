#include "server/nbd/write_operation.hpp"

#include <algorithm>

#include "server/nbd/operation_pools.hpp"

namespace gpunbd::server {

void WriteOperation::begin() {
    state_ = RequestState::receiving;
    missing_ = command_.length - skipped_;
    transfer_.begin(context_->transfer_context(), *this, {command_.offset + skipped_, missing_});
}

std::size_t WriteOperation::take(std::span<const std::byte> payload) {
    payload = payload.first(std::min<std::uint64_t>(payload.size(), missing_));
    const std::size_t used = discards() ? payload.size() : transfer_.fill(payload);
    missing_ -= used;
    return used;
}

void WriteOperation::discard() {
    if (state_ != RequestState::receiving && state_ != RequestState::executing) return;
    state_ = RequestState::discarding;
    transfer_.abandon();
}

void WriteOperation::moved() {
    if (missing_ != 0) {
        context_->wakeup().resume();
        return;
    }
    context_->wakeup().flush_soon();
    answer_if_done();
}

void WriteOperation::answer_if_done() {
    if (state_ == RequestState::receiving) state_ = RequestState::executing;
    discards();
    if (!transfer_.done()) return;
    const storage::Status status = transfer_.status();
    if (needs_reply(state_)) {
        answer_with(status);
    } else if (state_ == RequestState::handed_over && status != storage::Status::ok) {
        fail(status);
    }
    context_->ended(*this);
}

void WriteOperation::hand_over() {
    if (!discards()) transfer_.end_here();
    state_ = RequestState::handed_over;
    missing_ = 0;
    answer_if_done();
}

void WriteOperation::abandon() {
    give_up_answer();
    missing_ = 0;
    transfer_.abandon();
    answer_if_done();
}

void WriteOperation::return_to(OperationPools& pools) { pools.writes.give_back(*this); }

}  // namespace gpunbd::server
