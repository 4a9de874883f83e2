// A client that trusts nobody: it sends handcrafted bytes, and what it receives must be answers to
// its requests, each covering its request exactly. It never waits for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol/constants.hpp"
#include "protocol/reply.hpp"
#include "protocol/request.hpp"

namespace gpunbd::server::test {

using Bytes = std::vector<std::byte>;
using protocol::CommandType;
using protocol::Error;

// Milliseconds after which something that should happen is taken to hang.
constexpr int guard = 120 * 1000;

struct Ask {
    CommandType type = CommandType::read;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint16_t flags = 0;
    std::uint32_t seed = 1;      // of a WRITE's payload
    std::uint32_t contexts = 1;  // a bit for each that a BLOCK_STATUS payload names
};

// Payload without a zero in it: zeroes are what a hole has.
Bytes payload_of(const Ask& ask);
// As it is sent. With extended headers a WRITE has PAYLOAD_LEN, asked for or not, and what else
// asks for that has a payload, too: a BLOCK_STATUS its length and its contexts. But after a DISC
// nothing is sent.
protocol::Request request_of(const Ask& ask, std::uint64_t cookie, bool extended);
Bytes encoded_header(const Ask& ask, std::uint64_t cookie, bool extended);
Bytes status_payload_of(const Ask& ask);
// The request and its payload.
Bytes encoded(const Ask& ask, std::uint64_t cookie, bool extended = false);

struct Answer {
    std::uint64_t cookie = 0;
    Error error = Error::none;
    std::string text;                         // of an error that is a chunk
    Bytes data;                               // of a READ
    std::optional<std::uint64_t> failed_at;   // of an error that is a chunk
    std::vector<protocol::Extent> extents;    // of a BLOCK_STATUS: base:allocation
    std::vector<protocol::Extent> devices;    // and gpunbd:device
    std::vector<protocol::ChunkType> chunks;  // as they came
};

struct Handshake {
    bool structured = true;  // replies are chunks; and base:allocation with it
    bool extended = false;   // that, by extended headers
    std::string name = {};
    bool device = false;  // gpunbd:device as well
};

// All that a client sends up to GO.
Bytes handshake_bytes(const Handshake& handshake);

class Client {
 public:
    Client(int fd, const Handshake& handshake) : fd_(fd), handshake_(handshake) {}
    Client(Client&& other) noexcept;
    Client& operator=(Client&&) = delete;
    ~Client();

    // To be called before requests are sent; `sent`: the client's part has been sent already.
    // The answer to GO: 0 where it went well, else the error; nothing where the server hung up.
    std::optional<std::uint32_t> shake_hands(bool sent = false);
    void enter() { static_cast<void>(enter_or_fail()); }

    // Each returns the request's cookie.
    std::uint64_t send(const Ask& ask);
    // Tells it of a request that is sent by other means, in pieces or together with others.
    std::uint64_t expect(const Ask& ask);
    void send_bytes(std::span<const std::byte> bytes);
    // As much as the socket takes without waiting.
    std::size_t offer(std::span<const std::byte> bytes);

    // The next complete answer; nothing where the connection has ended.
    std::optional<Answer> next();
    // That of this request; others are kept for later. Fails the test where the connection ends.
    Answer answer(std::uint64_t cookie);
    std::optional<Answer> answer_or_end(std::uint64_t cookie);
    Answer ask(const Ask& what) { return answer(send(what)); }
    // For who runs the server on the same thread; neither waits. Takes at most `max` bytes.
    void receive_here(std::size_t max);
    // The next answer of which all has been received so.
    std::optional<Answer> next_here();
    bool ended() const { return ended_; }
    // The server has closed, and everything that it was asked has been answered.
    void check_end();
    bool ended_within_an_answer() const { return ended_within_; }
    std::size_t unanswered() const { return pending_.size(); }
    // Something has come that was not looked at.
    bool readable() const;
    // While this one waits, these are read from too, so that no answer of theirs is in the way.
    void wait_together_with(std::span<Client> clients) { together_ = clients; }

    void shut_down_sending() const;
    void close();
    // The server's end gets a reset. TCP only.
    void reset();

 private:
    struct Pending {
        Ask ask;
        Answer answer;
        std::uint64_t covered = 0;  // bytes of a READ
    };

    bool enter_or_fail();
    // `count` more bytes, or nothing: the connection has ended.
    std::optional<Bytes> take(std::size_t count);
    bool wait_for(short events);
    bool receive();
    std::optional<Answer> simple_reply(Pending& pending, Error error);
    // What a chunk's header says, after the magic.
    struct ChunkHeader {
        bool done = false;
        protocol::ChunkType type = protocol::ChunkType::none;
        std::uint64_t cookie = 0;
        std::size_t length = 0;  // bytes
    };
    std::optional<ChunkHeader> chunk_header();
    std::optional<Answer> chunk(const ChunkHeader& header);
    Answer complete(std::map<std::uint64_t, Pending>::iterator at);

    int fd_;
    Handshake handshake_;
    std::uint64_t last_cookie_ = 0x1122334400000000;
    std::map<std::uint64_t, Pending> pending_;
    std::map<std::uint64_t, Answer> kept_;
    Bytes received_;
    std::size_t used_ = 0;   // of received_
    std::size_t begin_ = 0;  // of the message that used_ is in
    bool waits_ = true;
    bool ended_ = false;
    bool ended_within_ = false;
    std::span<Client> together_;
};

}  // namespace gpunbd::server::test
