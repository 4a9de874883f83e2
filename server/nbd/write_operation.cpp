#include "server/nbd/write_operation.hpp"

#include <algorithm>

#include "server/nbd/operation_pools.hpp"
#include "server/nbd/zero_options.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

void ZeroOperation::begin() {
    become(RequestState::executing);
    transfer_.begin(context_->transfer_context(), *this, range(), zero_options(command_));
    answer_if_done();
}

void ZeroOperation::give_back_to(OperationPools& pools) {
    GPUNBD_ASSERT(transfer_.done(), "no page of a TRIM or WRITE_ZEROES that ends is in work");
    pools.zeroes.give_back(*this);
}

void FlushOperation::begin() {
    become(RequestState::executing);
    transfer_.begin(context_->transfer_context(), *this);
    answer_if_done();
}

void FlushOperation::give_back_to(OperationPools& pools) {
    GPUNBD_ASSERT(transfer_.done(), "a FLUSH that ends has been answered");
    pools.flushes.give_back(*this);
}

void WriteOperation::begin() {
    become(RequestState::receiving);
    GPUNBD_ASSERT(skipped_ == 0 || skipped_ < command_.length,
                  "a part of the payload is left to a WRITE that is continued");
    missing_ = command_.length - skipped_;
    transfer_.begin(context_->transfer_context(), *this, {command_.offset + skipped_, missing_},
                    command_.fua);
}

std::size_t WriteOperation::take(std::span<const std::byte> payload) {
    GPUNBD_ASSERT(state() == RequestState::receiving || state() == RequestState::discarding,
                  "payload arrives for a WRITE that waits for it");
    payload = payload.first(std::min<std::uint64_t>(payload.size(), missing_));
    const std::size_t used = discards() ? payload.size() : transfer_.fill(payload);
    missing_ -= used;
    return used;
}

void WriteOperation::discard() {
    if (state() != RequestState::receiving && state() != RequestState::executing) return;
    become(RequestState::discarding);
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
    GPUNBD_ASSERT(missing_ == 0, "a WRITE is answered after the last byte of its payload");
    if (state() == RequestState::receiving) become(RequestState::executing);
    discards();
    if (!transfer_.done()) return;
    const storage::Status status = transfer_.status();
    if (needs_reply(state())) {
        answer_with(status);
    } else if (state() == RequestState::handed_over && status != storage::Status::ok) {
        fail(status);
    }
    context_->ended(*this);
}

void WriteOperation::hand_over() {
    GPUNBD_ASSERT(missing_ != 0, "only a WRITE with payload to come is handed over");
    if (!discards()) transfer_.end_here();
    become(RequestState::handed_over);
    missing_ = 0;
    answer_if_done();
}

void WriteOperation::abandon() {
    give_up_answer();
    missing_ = 0;
    transfer_.abandon();
    answer_if_done();
}

void WriteOperation::give_back_to(OperationPools& pools) {
    GPUNBD_ASSERT(transfer_.done(), "no copy of a WRITE that ends is in flight");
    pools.writes.give_back(*this);
}

}  // namespace gpunbd::server
