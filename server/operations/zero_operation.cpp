#include "server/operations/zero_operation.hpp"

namespace gpunbd::server {

void ZeroOperation::begin() {
    transfer_.begin(context_->transfer_context(), *this, range(), command_.no_hole);
    answer_if_done();
}

void ZeroOperation::moved() {
    context_->flush_soon();
    answer_if_done();
}

void ZeroOperation::answer_if_done() {
    if (!transfer_.done()) return;
    if (!abandoned_) {
        context_->answered(*this);
        if (transfer_.status() == storage::Status::ok) {
            context_->succeed(*this);
        } else {
            context_->fail(*this, transfer_.status());
        }
    }
    context_->finish(*this);
}

void ZeroOperation::abandon() {
    abandoned_ = true;
    transfer_.abandon();
    answer_if_done();
}

}  // namespace gpunbd::server
