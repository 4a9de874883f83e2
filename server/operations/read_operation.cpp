#include "server/operations/read_operation.hpp"

#include <algorithm>
#include <array>

namespace gpunbd::server {

namespace {

constexpr std::size_t zeroes_length = 256 * 1024;  // bytes
constexpr std::array<std::byte, zeroes_length> zeroes{};

}  // namespace

void ReadOperation::begin() {
    stage_ = Stage::reading;
    lent_ = 0;
    if (command_.length == 0) {
        context_->answered(*this);
        context_->succeed(*this);
        context_->finish(*this);
        return;
    }
    const Form form = context_->encoder().splits(command_) ? Form::chunks : Form::whole;
    if (context_->send_queue().sequencer().enter(*this, form)) begin_transfer();
}

void ReadOperation::begin_transfer() {
    transfer_.begin(context_->transfer_context(), *this, range());
    send_ready();
    finish_if_over();
}

void ReadOperation::resume() {
    if (place() != Place::waiting) {
        send_ready();
        finish_if_over();
    } else if (context_->send_queue().sequencer().begin(*this)) {
        begin_transfer();
    }
}

void ReadOperation::moved() {
    send_ready();
    context_->flush_soon();
    finish_if_over();
}

void ReadOperation::send_ready() {
    if (abandoned_ || stage_ == Stage::answered) return;
    if (form() == Form::whole && stage_ == Stage::reading && !transfer_.whole_ready()) {
        // It will take several polls, and must have the stream to itself for all of them.
        if (transfer_.all_issued()) has_its_memory();
        if (transfer_.ready() && !context_->send_queue().sequencer().hold(*this)) return;
    }
    for (storage::ReadTransfer::Piece piece; transfer_.next(piece);) {
        ++lent_;
        const bool last = transfer_.all_taken();
        send(piece, last);
        if (last) {
            context_->answered(*this);
            leave_sequence();
        }
    }
    if (stage_ == Stage::answered) return;
    if (transfer_.status() != storage::Status::ok && lent_ == 0) {
        fail();
    } else if (transfer_.all_issued()) {
        has_its_memory();
    }
}

void ReadOperation::has_its_memory() {
    if (context_->send_queue().sequencer().served(*this)) context_->resume_receiving();
}

void ReadOperation::leave_sequence() {
    if (place() == Place::outside) return;
    if (context_->send_queue().leave(*this)) context_->resume_receiving();
}

void ReadOperation::send(const storage::ReadTransfer::Piece& piece, bool last) {
    if (form() == Form::chunks) {
        add_chunk(piece, last);
    } else {
        add_part_of_whole(piece);
    }
    stage_ = last ? Stage::answered : Stage::sending;
}

void ReadOperation::add_chunk(const storage::ReadTransfer::Piece& piece, bool last) {
    SendQueue::Item& item = context_->send_queue().add(this);
    const protocol::ReplyEncoder& encoder = context_->encoder();
    const bool hole = piece.data == nullptr;
    item.header_length = static_cast<std::uint8_t>(
        hole ? encoder.hole(item.header, command_, piece.offset, piece.length, last)
             : encoder.data(item.header, command_, piece.offset, piece.length, last));
    item.payload = piece.data;
    item.payload_length = hole ? 0 : piece.length;
    item.sender = this;
}

// Its only header goes before the first piece; holes are sent as the zeroes that they are.
void ReadOperation::add_part_of_whole(const storage::ReadTransfer::Piece& piece) {
    for (std::size_t left = piece.length; left != 0;) {
        const std::size_t part = piece.data != nullptr ? left : std::min(left, zeroes_length);
        left -= part;
        SendQueue::Item& item = context_->send_queue().add(this);
        if (stage_ == Stage::reading) {
            item.header_length =
                static_cast<std::uint8_t>(context_->encoder().whole(item.header, command_));
            stage_ = Stage::sending;
        }
        item.payload = piece.data != nullptr ? piece.data : zeroes.data();
        item.payload_length = part;
        item.sender = left == 0 ? this : nullptr;
    }
}

void ReadOperation::fail() {
    const storage::Status status = transfer_.status();
    const bool can_be_told = form() == Form::chunks || stage_ == Stage::reading;
    stage_ = Stage::answered;
    transfer_.abandon();
    if (!can_be_told) {
        context_->report_failure(*this, status);
        context_->hang_up("a READ failed after the header of its only piece had been sent");
        return;
    }
    leave_sequence();
    context_->answered(*this);
    context_->fail(*this, status, transfer_.failed_at());
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
    if (place() != Place::waiting) transfer_.abandon();
    leave_sequence();
    finish_if_over();
}

void ReadOperation::finish_if_over() {
    if ((stage_ == Stage::answered || abandoned_) && lent_ == 0 && transfer_.idle()) {
        context_->finish(*this);
    }
}

}  // namespace gpunbd::server
