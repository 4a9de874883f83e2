// Requests off a transport: one receive takes as many as have come, and the payload of a large
// WRITE goes straight into the memory that its operation lends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

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

    // What came before there was a reader.
    void put(std::span<const std::byte> bytes);

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
    // The WRITE whose payload is being received; null: none. No more of it is received.
    WriteOperation* stop_writing();

    // Nothing is expected for a while: gives the buffer back. What is in it is less than a request.
    void rest();
    std::size_t memory() const { return buffer_ != nullptr ? ReceiveBuffer::capacity : 0; }

 private:
    struct Header {};
    struct Payload {
        WriteOperation* write;
    };
    struct Discarded {
        std::uint64_t left;  // bytes
    };

    ReceiveBuffer& buffer();
    void drop_buffer();

    Pool<ReceiveBuffer>& buffers_;
    ReceiveBuffer* buffer_ = nullptr;
    std::variant<Header, Payload, Discarded> reading_;
    std::uint64_t last_write_ = 0;  // bytes: tells how much to receive at once
    // What had been received of a request when the buffer was given back.
    std::array<std::byte, protocol::request_size> rest_;
    std::size_t rest_length_ = 0;
};

}  // namespace gpunbd::server
