// Reads requests from a transport. One receive takes as many as have arrived; the payload of a
// large WRITE is received straight into the memory that its operation lends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/gate.hpp"
#include "protocol/request.hpp"
#include "server/nbd/write_operation.hpp"
#include "server/net/transport/pool.hpp"
#include "server/net/transport/receive_buffer.hpp"
#include "server/net/transport/transport.hpp"

namespace gpunbd::server {

class RequestReader {
 public:
    // `buffers` must outlive the reader, which has one of them only while there is something to
    // receive.
    explicit RequestReader(Pool<ReceiveBuffer>& buffers) : buffers_(buffers) {}
    ~RequestReader() { drop_buffer(); }
    RequestReader(const RequestReader&) = delete;
    RequestReader& operator=(const RequestReader&) = delete;

    // Requests of this kind follow. `bytes` of them have been received already.
    void begin(protocol::Headers headers, std::span<const std::byte> bytes);

    struct Received {
        enum class Amount : std::uint8_t {
            all,   // all that was requested, or Transport::Result::more: more may follow
            less,  // the transport has no more now
            none,  // nothing was requested, because the WRITE has no memory to lend now
            end,   // end of stream, or errno in `error`
        };
        Amount amount = Amount::less;
        std::size_t bytes = 0;
        std::size_t work = 0;  // as Transport::Result's
        int error = 0;
    };
    // `limit`: of the payload that is received into the memory of a WRITE; not 0.
    Received receive(Transport& transport, std::size_t limit);

    // The next item in the received bytes.
    enum class Next : std::uint8_t {
        bytes,    // more of them are needed
        request,  // `request` is set
        status,   // `request` is the BLOCK_STATUS whose payload is complete: status_payload()
        written,  // the payload of `write` is complete
        memory,   // the WRITE has no memory to lend for its payload now
        invalid,  // a request without its magic number
    };
    Next next(protocol::Request& request, WriteOperation*& write);
    // A request comes next, rather than the payload of one.
    bool at_request() const { return std::holds_alternative<Header>(reading_); }

    // After a request: the following payload belongs to `write`, is dropped, or describes a
    // BLOCK_STATUS.
    void expect_payload_of(WriteOperation& write);
    void expect_discarded(std::uint64_t bytes);
    void expect_status_payload(const protocol::Request& status, std::size_t length);
    std::span<const std::byte> status_payload() const {
        return std::span(status_payload_).first(status_payload_length_);
    }
    // The WRITE with payload that is being received; null: there is none.
    const WriteOperation* writing() const {
        const auto* const payload = std::get_if<Payload>(&reading_);
        return payload != nullptr ? payload->write : nullptr;
    }
    // Stops receiving the payload of the current WRITE and returns that WRITE. Returns null and
    // changes nothing if no payload of a WRITE is being received.
    WriteOperation* stop_writing();

    // The state at a request or in dropped payload, to continue from with begin() in another
    // process.
    struct Unread {
        std::uint64_t discarded = 0;   // bytes to drop first
        std::vector<std::byte> bytes;  // received and not consumed; at most ReceiveBuffer::capacity
    };
    Unread unread() const;

    // Returns the buffer to the pool while the connection is idle.
    void release_buffer();
    void release_empty_buffer() {
        if (buffer_ != nullptr && buffer_->bytes().empty()) drop_buffer();
    }
    std::size_t memory() const { return buffer_ != nullptr ? ReceiveBuffer::capacity : 0; }

 private:
    struct Header {};
    struct Payload {
        WriteOperation* write;
    };
    struct Discarded {
        std::uint64_t left;  // bytes
    };
    struct StatusPayload {
        protocol::Request request;
        std::size_t length;  // bytes
    };

    ReceiveBuffer& buffer();
    void drop_buffer() {
        if (buffer_ == nullptr) return;
        buffer_->consume(buffer_->bytes().size());
        buffers_.give_back(*std::exchange(buffer_, nullptr));
    }

    Pool<ReceiveBuffer>& buffers_;
    ReceiveBuffer* buffer_ = nullptr;
    protocol::Headers headers_ = protocol::Headers::simple;
    std::variant<Header, Payload, Discarded, StatusPayload> reading_;
    std::array<std::byte, protocol::max_status_payload> status_payload_;
    std::size_t status_payload_length_ = 0;
    std::uint64_t last_write_ = 0;  // bytes; decides how much to receive at once
    // The part of a request, or of a status payload, that was in the buffer at release_buffer().
    std::array<std::byte, protocol::extended_request_size> partial_;
    static_assert(protocol::max_status_payload <= protocol::extended_request_size);
    std::size_t partial_length_ = 0;
};

}  // namespace gpunbd::server
