#include "server/nbd/request_reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

// The payload of large writes is received straight into lent memory, followed by room for the next
// header and only a little of the payload after it, which has to be copied once more.
constexpr std::uint64_t large_write = 16 * 1024;       // bytes
constexpr std::size_t room_behind_payload = 4 * 1024;  // bytes
constexpr std::size_t max_lent = 8;                    // pieces of a write received into at once

}  // namespace

ReceiveBuffer& RequestReader::buffer() {
    if (buffer_ == nullptr) {
        buffer_ = &buffers_.take();
        std::memcpy(buffer_->room(partial_length_).data(), partial_.data(), partial_length_);
        buffer_->received(std::exchange(partial_length_, 0));
    }
    return *buffer_;
}

void RequestReader::release_buffer() {
    if (buffer_ == nullptr) return;
    const std::span<const std::byte> left = buffer_->bytes();
    GPUNBD_ASSERT(left.size() < partial_.size(),
                  "an idle connection has received less than a request");
    std::memcpy(partial_.data(), left.data(), left.size());
    partial_length_ = left.size();
    drop_buffer();
}

void RequestReader::begin(protocol::Headers headers, std::span<const std::byte> bytes) {
    GPUNBD_ASSERT(buffer_ == nullptr && partial_length_ == 0, "a reader begins once");
    headers_ = headers;
    const std::span<std::byte> room = buffer().room(bytes.size());
    GPUNBD_ASSERT(bytes.size() <= room.size(), "what was received earlier fits into a buffer");
    std::copy(bytes.begin(), bytes.end(), room.begin());  // `bytes` may be empty
    buffer_->received(bytes.size());
}

RequestReader::Unread RequestReader::unread() const {
    Unread unread;
    if (const auto* const discarded = std::get_if<Discarded>(&reading_); discarded != nullptr) {
        unread.discarded = discarded->left;
    } else if (const auto* const status = std::get_if<StatusPayload>(&reading_);
               status != nullptr) {  // only of extended headers
        unread.bytes.resize(protocol::extended_request_size);
        protocol::encode_extended_request(
            status->request, std::span(unread.bytes).first<protocol::extended_request_size>());
    }
    const std::span<const std::byte> received =
        buffer_ != nullptr ? buffer_->bytes() : std::span(partial_).first(partial_length_);
    unread.bytes.insert(unread.bytes.end(), received.begin(), received.end());
    return unread;
}

RequestReader::Received RequestReader::receive(Transport& transport, std::size_t limit) {
    using Amount = Received::Amount;
    std::array<iovec, max_lent + 1> pieces;
    std::size_t count = 0;
    std::size_t lent = 0;
    const auto* const payload = std::get_if<Payload>(&reading_);
    WriteOperation* const into =
        payload != nullptr && !payload->write->discards() ? payload->write : nullptr;
    if (into != nullptr) {
        count = into->lend(std::span(pieces).first(max_lent));
        for (std::size_t i = 0; i != count; ++i) lent += pieces[i].iov_len;
        if (lent == 0) return {.amount = Amount::none};
        GPUNBD_ASSERT(lent <= into->missing(), "a WRITE lends memory for its own payload only");
    }
    std::size_t asked = lent;
    if (lent > limit) {
        asked = limit;
        for (count = 0; limit > pieces[count].iov_len; ++count) limit -= pieces[count].iov_len;
        pieces[count++].iov_len = limit;
    } else if (into == nullptr || lent == into->missing()) {
        const std::span<std::byte> room = buffer().room(
            last_write_ >= large_write ? room_behind_payload : ReceiveBuffer::capacity);
        pieces[count++] = {.iov_base = room.data(), .iov_len = room.size()};
        asked += room.size();
    }
    GPUNBD_ASSERT(asked != 0, "a receive of no bytes would look like the end");
    const Transport::Result got = transport.receive(std::span(pieces).first(count));
    if (got.ended) return {.amount = Amount::end, .error = got.error};
    const std::size_t direct = std::min(got.bytes, lent);
    if (direct != 0) into->received(direct);
    if (got.bytes != direct) buffer_->received(got.bytes - direct);
    return {.amount = got.bytes == asked || got.more ? Amount::all : Amount::less,
            .bytes = got.bytes,
            .work = got.work};
}

RequestReader::Next RequestReader::next(protocol::Request& request, WriteOperation*& write) {
    for (;;) {
        const std::span<const std::byte> bytes =
            buffer_ != nullptr ? buffer_->bytes() : std::span<const std::byte>();
        if (auto* const payload = std::get_if<Payload>(&reading_); payload != nullptr) {
            if (payload->write->missing() == 0) {
                write = payload->write;
                reading_ = Header{};
                return Next::written;
            }
            if (bytes.empty()) return Next::bytes;
            const std::size_t used = payload->write->take(bytes);
            buffer_->consume(used);
            if (used == 0) return Next::memory;
        } else if (auto* const discarded = std::get_if<Discarded>(&reading_);
                   discarded != nullptr) {
            if (bytes.empty()) return Next::bytes;
            const auto used = std::min<std::uint64_t>(bytes.size(), discarded->left);
            buffer_->consume(used);
            discarded->left -= used;
            if (discarded->left == 0) reading_ = Header{};
        } else if (const auto* const status = std::get_if<StatusPayload>(&reading_);
                   status != nullptr) {
            if (bytes.size() < status->length) return Next::bytes;
            status_payload_length_ = status->length;
            std::memcpy(status_payload_.data(), bytes.data(), status_payload_length_);
            buffer_->consume(status_payload_length_);
            request = status->request;
            reading_ = Header{};
            return Next::status;
        } else {
            const std::size_t size = protocol::request_size_of(headers_);
            if (bytes.size() < size) return Next::bytes;
            const auto decoded = protocol::decode_request(bytes, headers_);
            buffer_->consume(size);
            if (!decoded) return Next::invalid;
            request = *decoded;
            return Next::request;
        }
    }
}

void RequestReader::expect_payload_of(WriteOperation& write) {
    GPUNBD_ASSERT(at_request(), "payload follows its request");
    last_write_ = write.command().length;
    reading_ = Payload{&write};
}

void RequestReader::expect_status_payload(const protocol::Request& status, std::size_t length) {
    GPUNBD_ASSERT(at_request() && length <= status_payload_.size(),
                  "a status payload follows its request and has a valid length");
    reading_ = StatusPayload{status, length};
}

void RequestReader::expect_discarded(std::uint64_t bytes) {
    GPUNBD_ASSERT(bytes == 0 || at_request(), "payload is dropped after its request");
    if (bytes != 0) reading_ = Discarded{bytes};
}

WriteOperation* RequestReader::stop_writing() {
    const auto* const payload = std::get_if<Payload>(&reading_);
    if (payload == nullptr) return nullptr;
    WriteOperation* const write = payload->write;
    reading_ = Header{};
    return write;
}

}  // namespace gpunbd::server
