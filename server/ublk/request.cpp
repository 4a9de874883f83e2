#include "server/ublk/request.hpp"

#include <array>
#include <new>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server::ublk {

using protocol::CommandType;
using storage::Status;

void Request::start() {
    running_ = true;
    status_ = Status::ok;
    received_ = 0;
    try {
        begin();
    } catch (const std::bad_alloc&) {
        fail(Status::io_error);
    }
    transfer_moved(read_);
}

void Request::transfer_moved(storage::Transfer&) {
    try {
        advance();
    } catch (const std::bad_alloc&) {
        fail(Status::io_error);
        advance();  // allocates nothing any more
    }
}

void Request::begin() {
    const storage::Range range{command_.offset, command_.length};
    switch (command_.type) {
        case CommandType::read:
            return read_.begin(context_.transfer, *this, range);
        case CommandType::write:
            return write_.begin(context_.transfer, *this, range);
        case CommandType::trim:
        case CommandType::write_zeroes:
            return zero_.begin(context_.transfer, *this, range, command_.no_hole);
        default:  // FLUSH: every answered WRITE is in device memory
            return;
    }
}

void Request::advance() {
    switch (command_.type) {
        case CommandType::read:
            return read();
        case CommandType::write:
            return write();
        case CommandType::trim:
        case CommandType::write_zeroes:
            return zero();
        default:
            end(Status::ok);
    }
}

void Request::read() {
    storage::ReadTransfer::Piece piece;
    while (status_ == Status::ok && read_.next(piece)) {
        GPUNBD_ASSERT(contains(command_, piece.offset, piece.length),
                      "the pieces of a READ lie in its range");
        if (!context_.payload.send(tag_, piece.data, piece.length,
                                   piece.offset - command_.offset)) {
            fail(Status::io_error);
        }
        read_.give_back();
    }
    fail(read_.status());
    if (status_ != Status::ok) read_.abandon();
    if (read_.all_taken() && read_.idle()) end(status_);
}

void Request::write() {
    std::array<iovec, 8> lent;
    while (status_ == Status::ok) {
        const std::size_t pieces = write_.lend(lent);
        if (pieces == 0) break;
        const std::size_t bytes =
            context_.payload.receive(tag_, std::span(lent).first(pieces), received_);
        if (bytes == 0) {
            fail(Status::io_error);
        } else {
            received_ += bytes;
            GPUNBD_ASSERT(received_ <= command_.length, "a WRITE receives its own payload only");
            write_.filled(bytes);
        }
    }
    fail(write_.status());
    if (status_ != Status::ok) write_.abandon();
    if (write_.done()) end(status_);
}

void Request::zero() {
    fail(zero_.status());
    if (status_ != Status::ok) zero_.abandon();
    if (zero_.done()) end(status_);
}

}  // namespace gpunbd::server::ublk
