#include "server/write_operation.hpp"

#include <algorithm>

#include "server/session.hpp"
#include "server/wire_error.hpp"

namespace gpunbd::server {

void WriteOperation::start(Session& session, const protocol::Command& command) {
    attach(session, command);
    missing_ = command.length;
    given_up_ = false;
    transfer_.begin(session.volume(), session.lanes(), session.staging(), *this, command.offset,
                    command.length);
}

std::size_t WriteOperation::lend(std::span<iovec> out) { return transfer_.lend(out); }

void WriteOperation::received(std::size_t bytes) {
    missing_ -= static_cast<std::uint32_t>(bytes);
    transfer_.filled(bytes);
}

std::size_t WriteOperation::take(std::span<const std::byte> payload) {
    payload = payload.first(std::min<std::size_t>(payload.size(), missing_));
    const std::size_t used = discards() ? payload.size() : transfer_.fill(payload);
    missing_ -= static_cast<std::uint32_t>(used);
    return used;
}

bool WriteOperation::discards() {
    if (!given_up_ && transfer_.status() != storage::Status::ok) {
        given_up_ = true;
        session_->report_failure(*this, transfer_.status());
        transfer_.abandon();
    }
    return given_up_;
}

void WriteOperation::transfer_moved(storage::Transfer&) {
    if (missing_ != 0 && !abandoned_) {
        session_->resume_receiving();
        return;
    }
    session_->flush_soon();
    answer_if_done();
}

void WriteOperation::answer_if_done() {
    if (!abandoned_) discards();
    if (!transfer_.done()) return;
    if (!abandoned_) {
        session_->answered(*this);
        protocol::ReplyHeader header;
        session_->send_header(header, protocol::encode_simple_reply(
                                          header, wire_error(transfer_.status()), command_.cookie));
    }
    session_->finish(*this);
}

void WriteOperation::abandon() {
    abandoned_ = true;
    missing_ = 0;
    transfer_.abandon();
    answer_if_done();
}

}  // namespace gpunbd::server
