#include "server/nbd/zero_operation.hpp"

#include "server/nbd/operation_pools.hpp"

namespace gpunbd::server {

void ZeroOperation::begin() {
    state_ = RequestState::executing;
    transfer_.begin(context_->transfer_context(), *this, range(), command_.no_hole);
    answer_if_done();
}

void ZeroOperation::moved() {
    context_->wakeup().flush_soon();
    answer_if_done();
}

void ZeroOperation::answer_if_done() {
    if (!transfer_.done()) return;
    if (needs_reply(state_)) answer_with(transfer_.status());
    context_->ended(*this);
}

void ZeroOperation::abandon() {
    give_up_answer();
    transfer_.abandon();
    answer_if_done();
}

void ZeroOperation::return_to(OperationPools& pools) { pools.zeroes.give_back(*this); }

}  // namespace gpunbd::server
