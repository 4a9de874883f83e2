// A strict client. It sends hand-encoded bytes, and checks that each received reply answers one of
// its requests and covers it exactly. All waiting is bounded.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protocol/constants.hpp"
#include "protocol/reply_encoder.hpp"
#include "protocol/request.hpp"
#include "storage/base/owned_fd.hpp"
#include "tests/protocol/wire.hpp"
#include "tests/socket_pairs.hpp"

namespace gpunbd::server::test {

using Bytes = std::vector<std::byte>;
using gpunbd::test::unix_pair;
using protocol::CommandType;
using protocol::Error;

// Milliseconds after which an expected event counts as hanging.
constexpr int guard = 120 * 1000;

struct Ask {
    CommandType type = CommandType::read;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint16_t flags = 0;
    std::uint32_t seed = 1;      // of the payload of a WRITE
    std::uint32_t contexts = 1;  // bit mask of the contexts in a BLOCK_STATUS payload
};

// Payload without zero bytes, which would look like a hole.
Bytes payload_of(const Ask& ask);
// The request as it is sent. With extended headers, a WRITE always has PAYLOAD_LEN, and another
// command with PAYLOAD_LEN has a payload: a BLOCK_STATUS its length and its contexts. No payload
// follows a DISC.
protocol::Request request_of(const Ask& ask, std::uint64_t cookie, bool extended);
Bytes encoded_header(const Ask& ask, std::uint64_t cookie, bool extended);
Bytes status_payload_of(const Ask& ask);
// The request with its payload.
Bytes encoded(const Ask& ask, std::uint64_t cookie, bool extended = false);

struct Answer {
    std::uint64_t cookie = 0;
    Error error = Error::none;
    std::string text;                         // of an error chunk
    Bytes data;                               // of a READ
    std::optional<std::uint64_t> failed_at;   // of an error chunk
    std::vector<protocol::Extent> extents;    // base:allocation of a BLOCK_STATUS
    std::vector<protocol::Extent> devices;    // gpunbd:device of a BLOCK_STATUS
    std::vector<protocol::ChunkType> chunks;  // in order of arrival
};

struct Handshake {
    bool structured = true;  // structured replies and base:allocation
    bool extended = false;   // extended headers, structured replies and base:allocation
    std::string name = {};
    bool device = false;  // also gpunbd:device
};

// Everything that a client sends up to and including GO.
Bytes handshake_bytes(const Handshake& handshake);

class Client {
 public:
    Client(int fd, const Handshake& handshake) : fd_(fd), handshake_(handshake) {}
    Client(Client&&) = default;
    Client& operator=(Client&&) = delete;

    // To be called before requests are sent; `sent`: the client's part has been sent already.
    // Returns 0 if GO succeeded, its error, or nothing if the server hung up.
    std::optional<std::uint32_t> shake_hands(bool sent = false);
    void enter() { static_cast<void>(enter_or_fail()); }

    // Each returns the cookie of the request.
    std::uint64_t send(const Ask& ask);
    // Registers a request whose bytes the caller sends, in pieces or together with others.
    std::uint64_t expect(const Ask& ask);
    // Registers these requests, and returns their bytes.
    Bytes expect_all(const std::vector<Ask>& asks);
    // Sends the same request many times at once.
    void flood(const Ask& ask, std::size_t count) {
        send_bytes(expect_all(std::vector<Ask>(count, ask)));
    }
    void send_bytes(std::span<const std::byte> bytes);
    // Sends as much as the socket accepts without blocking. Returns the number of bytes.
    std::size_t offer(std::span<const std::byte> bytes);

    // The next complete reply, or nothing if the connection has ended.
    std::optional<Answer> next();
    // The reply to this request; others are stored. Fails the test if the connection ends.
    Answer answer(std::uint64_t cookie);
    std::optional<Answer> answer_or_end(std::uint64_t cookie);
    Answer ask(const Ask& what) { return answer(send(what)); }
    // Receives all replies. Without `error`, they may have any.
    void receive_all(std::optional<Error> error = Error::none);
    // For tests that run the server on the same thread. Neither call blocks. Receives at most `max`
    // bytes.
    void receive_here(std::size_t max);
    // The next complete reply among the bytes that receive_here() has received.
    std::optional<Answer> next_here();
    bool ended() const { return ended_; }
    // Checks that the server has closed the connection after it has answered every request.
    void check_end();
    // Sends DISC, and checks that the server closes the connection.
    void disconnect();
    bool ended_within_an_answer() const { return ended_within_; }
    std::size_t unanswered() const { return pending_.size(); }
    // Received data has not been processed.
    bool readable() const;
    // While this client waits, it also receives for these, so that their pending replies do not
    // block the server.
    void wait_together_with(std::span<Client> clients) { together_ = clients; }

    void shut_down_sending() const;
    void close() { fd_ = OwnedFd(); }
    // Resets the connection (TCP only).
    void reset();

 private:
    struct Pending {
        Ask ask;
        Answer answer;
        std::uint64_t covered = 0;  // of a READ
    };

    bool enter_or_fail();
    // Returns the next `count` bytes, or nothing if the connection has ended.
    std::optional<Bytes> take(std::size_t count);
    bool wait_for(short events);
    ssize_t receive_some(std::size_t max);
    bool receive();
    std::optional<Answer> chunk(const protocol::wire::ReplyHead& head);
    Answer complete(std::map<std::uint64_t, Pending>::iterator at);

    OwnedFd fd_;
    Handshake handshake_;
    std::uint64_t last_cookie_ = 0x1122334400000000;
    std::map<std::uint64_t, Pending> pending_;
    std::map<std::uint64_t, Answer> kept_;
    Bytes received_;
    std::size_t used_ = 0;   // index of the next unprocessed byte of received_
    std::size_t begin_ = 0;  // index of the message that contains used_
    bool waits_ = true;
    bool ended_ = false;
    bool ended_within_ = false;
    std::span<Client> together_;
};

}  // namespace gpunbd::server::test
