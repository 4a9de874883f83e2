#include "server/nbd/write_operation.hpp"

#include <algorithm>
#include <cstring>
#include <new>

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

bool WriteOperation::take_buffer() {
    if (buffer_ != nullptr) return true;
    if (!transfer_.is_fetching() || !context_->take_buffer_memory(missing_)) return false;
    buffer_size_ = static_cast<std::size_t>(missing_);
    buffer_.reset(new (std::nothrow) std::byte[buffer_size_]);
    if (buffer_ == nullptr) drop_buffer();
    return buffer_ != nullptr;
}

void WriteOperation::drop_buffer() {
    buffer_.reset();
    if (buffer_size_ != 0) context_->return_buffer_memory(buffer_size_);
    buffer_size_ = buffered_ = written_ = 0;
}

void WriteOperation::write_buffered() {
    if (is_buffering()) {
        written_ +=
            transfer_.fill(std::span<const std::byte>(buffer_.get(), buffered_).subspan(written_));
    }
    if (buffer_ != nullptr && missing_ == 0 && !is_buffering()) drop_buffer();
}

std::size_t WriteOperation::lend(std::span<iovec> out) {
    if (buffer_ == nullptr) {
        if (const std::size_t count = transfer_.lend(out); count != 0) return count;
    }
    if (!take_buffer()) return 0;
    out.front() = {.iov_base = buffer_.get() + buffered_, .iov_len = buffer_size_ - buffered_};
    return 1;
}

void WriteOperation::received(std::size_t bytes) {
    GPUNBD_ASSERT(state() == RequestState::receiving && bytes <= missing_,
                  "lent memory receives no more than the payload of its WRITE");
    missing_ -= bytes;
    if (buffer_ == nullptr) return transfer_.filled(bytes);
    buffered_ += bytes;
    write_buffered();
}

std::size_t WriteOperation::take(std::span<const std::byte> payload) {
    GPUNBD_ASSERT(state() == RequestState::receiving || state() == RequestState::discarding,
                  "payload arrives for a WRITE that waits for it");
    payload = payload.first(std::min<std::uint64_t>(payload.size(), missing_));
    if (discards()) {
        missing_ -= payload.size();
        return payload.size();
    }
    std::size_t used = buffer_ == nullptr ? transfer_.fill(payload) : 0;
    missing_ -= used;
    if (used != payload.size() && take_buffer()) {
        const std::span<const std::byte> rest = payload.subspan(used);
        std::memcpy(buffer_.get() + buffered_, rest.data(), rest.size());
        used = payload.size();
        received(rest.size());
    }
    return used;
}

void WriteOperation::discard() {
    if (state() != RequestState::receiving && state() != RequestState::executing) return;
    become(RequestState::discarding);
    drop_buffer();
    transfer_.abandon();
}

void WriteOperation::moved() {
    if (!discards()) write_buffered();
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
    GPUNBD_ASSERT(missing_ != 0 && !is_buffering(),
                  "only a WRITE with payload to come is handed over");
    drop_buffer();
    if (!discards()) transfer_.end_here();
    become(RequestState::handed_over);
    missing_ = 0;
    answer_if_done();
}

void WriteOperation::abandon() {
    give_up_answer();
    missing_ = 0;
    drop_buffer();
    transfer_.abandon();
    answer_if_done();
}

void WriteOperation::give_back_to(OperationPools& pools) {
    GPUNBD_ASSERT(transfer_.done() && buffer_ == nullptr,
                  "no copy of a WRITE that ends is in flight");
    pools.writes.give_back(*this);
}

}  // namespace gpunbd::server
