// Requests off a transport: one receive takes as many as have come, and the payload of a large
// WRITE goes straight into the memory that its operation lends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "protocol/gate.hpp"
#include "protocol/request.hpp"
#include "server/connection/pool.hpp"
#include "server/connection/receive_buffer.hpp"
#include "server/connection/transport.hpp"
#include "server/operations/write_operation.hpp"

namespace gpunbd::server {

class RequestReader {
 public:
    // `buffers` outlives it. It has one of them only while there is something to receive.
    explicit RequestReader(Pool<ReceiveBuffer>& buffers) : buffers_(buffers) {}
    ~RequestReader() { drop_buffer(); }
    RequestReader(const RequestReader&) = delete;
    RequestReader& operator=(const RequestReader&) = delete;

    // Requests of this kind come from now on; `bytes` of them have come already.
    void begin(protocol::Headers headers, std::span<const std::byte> bytes);

    // What receiving came to.
    struct Received {
        enum class Amount : std::uint8_t {
            all,   // as much as was asked for: there is likely more
            less,  // the transport has no more now
            none,  // nothing was asked for: the WRITE has no memory to lend now
            end,   // the client sends no more; errno in `error`
        };
        Amount amount = Amount::less;
        std::size_t bytes = 0;
        int error = 0;
    };
    Received receive(Transport& transport);

    // What is next in the bytes received.
    enum class Next : std::uint8_t {
        bytes,    // more of them are needed
        request,  // `request` has it
        status,   // `request` is the BLOCK_STATUS whose payload is complete: status_payload()
        written,  // the payload of `write` is complete
        memory,   // the WRITE has no memory to lend for its payload now
        invalid,  // a request without its magic number
    };
    Next next(protocol::Request& request, WriteOperation*& write);
    // May a request be next? Otherwise the payload of one is.
    bool at_request() const { return std::holds_alternative<Header>(reading_); }

    // After a request: the payload that follows it belongs to `write`, or to nobody.
    void expect_payload_of(WriteOperation& write);
    void expect_discarded(std::uint64_t bytes);
    // Or tells what it is about.
    void expect_status_payload(const protocol::Request& status, std::size_t length);
    std::span<const std::byte> status_payload() const {
        return std::span(status_payload_).first(status_payload_length_);
    }
    // The WRITE whose payload is being received; null: none. No more of it is received.
    WriteOperation* stop_writing();

    // At a request, or in payload of nobody: all that goes on from here, for begin() elsewhere.
    struct Unread {
        std::uint64_t discarded = 0;   // payload bytes of nobody that come first
        std::vector<std::byte> bytes;  // that have been received; at most ReceiveBuffer::capacity
    };
    Unread unread() const;

    // Nothing is expected for a while: gives the buffer back. What is in it is less than a request.
    void rest();
    // Nothing is taken for a while: gives it back if nothing is in it.
    void rest_if_empty() {
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
    // Of the first request_size_ bytes.
    std::optional<protocol::Request> decode(std::span<const std::byte> bytes) const;
    void drop_buffer();

    Pool<ReceiveBuffer>& buffers_;
    ReceiveBuffer* buffer_ = nullptr;
    std::size_t request_size_ = protocol::request_size;  // bytes: tells also of which kind it is
    std::variant<Header, Payload, Discarded, StatusPayload> reading_;
    std::array<std::byte, protocol::max_status_payload> status_payload_;
    std::size_t status_payload_length_ = 0;
    std::uint64_t last_write_ = 0;  // bytes: tells how much to receive at once
    // What had been received of a request, or of a status payload, when the buffer was given back.
    std::array<std::byte, protocol::extended_request_size> rest_;
    static_assert(protocol::max_status_payload <= protocol::extended_request_size);
    std::size_t rest_length_ = 0;
};

}  // namespace gpunbd::server
