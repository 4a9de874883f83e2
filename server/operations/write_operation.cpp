#include "server/operations/write_operation.hpp"

#include <algorithm>
#include <utility>

namespace gpunbd::server {

void WriteOperation::begin() {
    missing_ = command_.length - there_already_;
    given_up_ = false;
    transfer_.begin(context_->transfer_context(), *this,
                    {command_.offset + there_already_, missing_});
}

std::size_t WriteOperation::lend(std::span<iovec> out) { return transfer_.lend(out); }

void WriteOperation::received(std::size_t bytes) {
    missing_ -= bytes;
    transfer_.filled(bytes);
}

std::size_t WriteOperation::take(std::span<const std::byte> payload) {
    payload = payload.first(std::min<std::uint64_t>(payload.size(), missing_));
    const std::size_t used = discards() ? payload.size() : transfer_.fill(payload);
    missing_ -= used;
    return used;
}

bool WriteOperation::discards() {
    if (!given_up_ && transfer_.status() != storage::Status::ok) {
        given_up_ = true;
        transfer_.abandon();
    }
    return given_up_;
}

void WriteOperation::moved() {
    if (missing_ != 0 && !abandoned_) {
        context_->resume_receiving();
        return;
    }
    context_->flush_soon();
    answer_if_done();
}

void WriteOperation::answer_if_done() {
    if (!abandoned_) discards();
    if (!transfer_.done()) return;
    if (!abandoned_) {
        answer();
    } else if (std::exchange(cut_short_, false) && transfer_.status() != storage::Status::ok) {
        answer();
        context_->lose_half_write();
    }
    context_->finish(*this);
}

void WriteOperation::answer() {
    context_->answered(*this);
    if (transfer_.status() == storage::Status::ok) {
        context_->succeed(*this);
    } else {
        context_->fail(*this, transfer_.status());
    }
}

void WriteOperation::cut_short() {
    if (!discards()) transfer_.end_here();
    abandoned_ = cut_short_ = true;
    missing_ = 0;
    answer_if_done();
}

void WriteOperation::abandon() {
    abandoned_ = true;
    cut_short_ = false;
    missing_ = 0;
    transfer_.abandon();
    answer_if_done();
}

}  // namespace gpunbd::server
