#include "server/ublk/request.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "server/nbd/zero_options.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::server::ublk {

namespace {

constexpr std::array<std::byte, 64 * 1024> zeroes{};

}  // namespace

std::size_t Payload::receive(std::uint16_t tag, std::span<const iovec> lent, std::uint64_t offset) {
    GPUNBD_ASSERT(!lent.empty() && lent.front().iov_len != 0, "there is memory for the payload");
    if (receives_directly_) {
        const ssize_t got = io_.receive(tag, lent, offset);
        if (got > 0) return static_cast<std::size_t>(got);
    }
    const iovec part{.iov_base = buffer_.data(),
                     .iov_len = std::min(lent.front().iov_len, buffer_size)};
    const ssize_t got = io_.receive(tag, {&part, 1}, offset);
    if (got <= 0) return 0;
    receives_directly_ = false;
    const auto bytes = static_cast<std::size_t>(got);
    storage::store_streaming(static_cast<std::byte*>(lent.front().iov_base), buffer_.data(), bytes);
    return bytes;
}

bool Payload::send(std::uint16_t tag, const std::byte* data, std::size_t length,
                   std::uint64_t offset) {
    if (data != nullptr) {
        const std::span<const std::byte> all(data, length);
        if (sends_directly_ && send_all(tag, all, offset)) return true;
        return send_buffered(tag, all, offset);
    }
    while (length != 0) {
        const std::size_t part = std::min(length, zeroes.size());
        if (!send_all(tag, std::span(zeroes).first(part), offset)) return false;
        length -= part;
        offset += part;
    }
    return true;
}

bool Payload::send_all(std::uint16_t tag, std::span<const std::byte> data, std::uint64_t offset) {
    while (!data.empty()) {
        const ssize_t sent = io_.send(tag, data, offset);
        if (sent <= 0) return false;
        data = data.subspan(static_cast<std::size_t>(sent));
        offset += static_cast<std::uint64_t>(sent);
    }
    return true;
}

bool Payload::send_buffered(std::uint16_t tag, std::span<const std::byte> data,
                            std::uint64_t offset) {
    while (!data.empty()) {
        const auto part = data.first(std::min(data.size(), buffer_size));
        std::copy(part.begin(), part.end(), buffer_.begin());
        if (!send_all(tag, std::span(buffer_).first(part.size()), offset)) return false;
        sends_directly_ = false;
        data = data.subspan(part.size());
        offset += part.size();
    }
    return true;
}

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
            return write_.begin(context_.transfer, *this, range, command_.fua);
        case CommandType::trim:
        case CommandType::write_zeroes:
            return zero_.begin(context_.transfer, *this, range, zero_options(command_));
        default:  // FLUSH, which has work to do only if the volume is a cache
            if (flushes_cache()) flush_.begin(context_.transfer, *this);
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
            return flush();
    }
}

void Request::flush() {
    if (!flushes_cache()) return end(Status::ok);
    if (flush_.done()) end(flush_.status());
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
