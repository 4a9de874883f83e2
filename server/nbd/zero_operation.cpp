#include "server/nbd/zero_operation.hpp"

#include "server/nbd/operation_pools.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

void ZeroOperation::begin() {
    become(RequestState::executing);
    transfer_.begin(context_->transfer_context(), *this, range(), command_.no_hole);
    answer_if_done();
}

void ZeroOperation::moved() {
    context_->wakeup().flush_soon();
    answer_if_done();
}

void ZeroOperation::answer_if_done() {
    if (!transfer_.done()) return;
    if (needs_reply(state())) answer_with(transfer_.status());
    context_->ended(*this);
}

void ZeroOperation::abandon() {
    give_up_answer();
    transfer_.abandon();
    answer_if_done();
}

void ZeroOperation::give_back_to(OperationPools& pools) {
    GPUNBD_ASSERT(transfer_.done(), "no page of a TRIM or WRITE_ZEROES that ends is in work");
    pools.zeroes.give_back(*this);
}

}  // namespace gpunbd::server
