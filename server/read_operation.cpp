#include "server/read_operation.hpp"

#include <algorithm>
#include <array>

#include "server/session.hpp"
#include "server/wire_error.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t zeroes_length = 256 * 1024;  // bytes
constexpr std::array<std::byte, zeroes_length> zeroes{};

}  // namespace

void ReadOperation::start(Session& session, const protocol::Command& command) {
    attach(session, command);
    structured_ = session.agreement().structured_replies;
    in_one_ = !structured_ || command.one_chunk;
    header_sent_ = answered_ = in_line_ = begun_ = false;
    lent_ = 0;
    if (command.length == 0) {
        protocol::ReplyHeader header;
        session.send_header(header, structured_
                                        ? protocol::encode_done_chunk(header, command.cookie)
                                        : protocol::encode_simple_reply(
                                              header, protocol::Error::none, command.cookie));
        session.finish(*this);
        return;
    }
    in_line_ = true;
    session.enter_read(*this, in_one_);
    resume();
}

void ReadOperation::resume() {
    if (!begun_) {
        // Those in chunks go on wanting staging memory, and it may not have any of it meanwhile.
        if (in_one_ && session_->unanswered_reads(false) != 0) {
            session_->outbox().hold(*this, false);
            return;
        }
        begun_ = true;
        transfer_.begin(session_->volume(), session_->lanes(), session_->staging(), *this,
                        command_.offset, command_.length);
    }
    send_ready();
    finish_if_over();
}

void ReadOperation::transfer_moved(storage::Transfer&) {
    send_ready();
    session_->flush_soon();
    finish_if_over();
}

void ReadOperation::send_ready() {
    if (abandoned_ || answered_) return;
    Outbox& outbox = session_->outbox();
    if (in_one_ && !header_sent_ && !transfer_.whole_ready()) {
        // It will take several turns, and must have the stream to itself for all of them. While it
        // wants more staging memory, none may be held by answers that would wait behind it.
        const bool allowed = transfer_.all_issued() || session_->unanswered_reads(true) == 1;
        if (transfer_.ready() && !outbox.hold(*this, allowed)) {
            settle_line();
            return;
        }
    }
    for (storage::ReadTransfer::Piece piece; transfer_.next(piece);) {
        ++lent_;
        answered_ = transfer_.all_taken();
        send(piece);
        if (answered_) {
            session_->answered(*this);
            settle_line();
            outbox.let_go(*this);
        }
    }
    if (transfer_.status() != storage::Status::ok && !answered_ && lent_ == 0) fail();
    settle_line();
}

// Tells the session what its rule for READs that are answered in one piece depends on.
void ReadOperation::settle_line() {
    if (!in_line_) return;
    if (answered_ || abandoned_) {
        in_line_ = false;
        session_->leave_read(*this, in_one_);
    } else if (transfer_.all_issued()) {
        session_->is_issued(*this);
    }
}

// The header that belongs before a piece: of its own chunk, or, where all is answered in one, that
// of the whole before the first piece and none after.
void ReadOperation::put_header(Outbox::Item& item, const storage::ReadTransfer::Piece& piece) {
    std::size_t length = 0;
    if (!in_one_) {
        length = piece.data != nullptr
                     ? protocol::encode_data_chunk(item.header, command_.cookie, piece.offset,
                                                   piece.length, answered_)
                     : protocol::encode_hole_chunk(item.header, command_.cookie, piece.offset,
                                                   piece.length, answered_);
    } else if (!header_sent_) {
        length = structured_ ? protocol::encode_data_chunk(item.header, command_.cookie,
                                                           command_.offset, command_.length, true)
                             : protocol::encode_simple_reply(item.header, protocol::Error::none,
                                                             command_.cookie);
    }
    header_sent_ = true;
    item.header_length = static_cast<std::uint8_t>(length);
}

void ReadOperation::send(const storage::ReadTransfer::Piece& piece) {
    if (piece.data != nullptr || !in_one_) {
        Outbox::Item& item = session_->outbox().add(this);
        put_header(item, piece);
        item.payload = piece.data;
        item.payload_length = piece.data != nullptr ? piece.length : 0;
        item.operation = this;
        return;
    }
    for (std::size_t left = piece.length; left != 0;) {
        const std::size_t part = std::min(left, zeroes_length);
        left -= part;
        Outbox::Item& item = session_->outbox().add(this);
        put_header(item, piece);
        item.payload = zeroes.data();
        item.payload_length = part;
        item.operation = left == 0 ? this : nullptr;
    }
}

void ReadOperation::fail() {
    answered_ = true;
    session_->report_failure(*this, transfer_.status());
    transfer_.abandon();
    if (in_one_ && header_sent_) {
        session_->hang_up("a READ failed after the header of its only chunk had been sent");
        return;
    }
    protocol::ReplyHeader header;
    const protocol::Error error = wire_error(transfer_.status());
    settle_line();
    session_->outbox().let_go(*this);
    session_->send_header(
        header, structured_ ? protocol::encode_error_chunk(header, command_.cookie, error)
                            : protocol::encode_simple_reply(header, error, command_.cookie));
}

void ReadOperation::sent() {
    --lent_;
    transfer_.give_back();
    send_ready();
    finish_if_over();
}

void ReadOperation::abandon() {
    abandoned_ = true;
    lent_ = 0;
    transfer_.abandon();
    settle_line();
    finish_if_over();
}

void ReadOperation::finish_if_over() {
    if ((answered_ || abandoned_) && lent_ == 0 && transfer_.idle()) session_->finish(*this);
}

}  // namespace gpunbd::server
