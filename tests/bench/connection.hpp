// A connection to an NBD server, and its handshake. Set-up code throws std::runtime_error with a
// readable text.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/constants.hpp"
#include "protocol/request.hpp"
#include "server/tools/client/address.hpp"
#include "storage/base/owned_fd.hpp"
#include "tests/bench/tls_client.hpp"
#include "tests/protocol/wire.hpp"

namespace gpunbd::bench {

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }
[[noreturn]] inline void fail_errno(const std::string& what) {
    fail(what + ": " + std::strerror(errno));
}

class Socket {
 public:
    Socket() = default;
    explicit Socket(int fd) : fd_(fd) {}
    int fd() const { return fd_.get(); }

    void start_tls(const TlsContext& context) { tls_ = std::make_unique<TlsClient>(context, fd()); }
    // null: no TLS
    const TlsClient* tls() const { return tls_.get(); }

    // Like sendmsg() without SIGPIPE, and recv(). With TLS a send never blocks.
    ssize_t send(iovec* pieces, std::size_t count, int flags) {
        if (tls_) return tls_->send(pieces, count);
        msghdr message{};
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        return sendmsg(fd(), &message, MSG_NOSIGNAL | flags);
    }
    ssize_t receive(void* into, std::size_t room, int flags) {
        return tls_ ? tls_->receive(into, room, flags) : recv(fd(), into, room, flags);
    }
    // Returns true if TLS has buffered data that a poll of the socket does not report.
    bool pending() const { return tls_ && tls_->pending(); }

 private:
    OwnedFd fd_;
    std::unique_ptr<TlsClient> tls_;
};

// Tries all addresses of the host. The connect blocks: over a Unix socket it waits for its place in
// the queue of the server.
inline Socket connect_to(const config::NbdTarget& target) {
    const auto resolved = client::resolve(target);
    if (!resolved) fail(with_remedy(resolved.error()));
    const auto& address = *resolved;
    int error = ENOENT;
    for (const auto& to : address.addresses) {
        Socket socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (socket.fd() >= 0 &&
            connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) == 0) {
            const int one = 1;
            setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
            return socket;
        }
        error = errno;
    }
    errno = error;
    fail_errno("connect to " + address.text);
}

// Limits how long a call may block on the socket; 0: no limit.
inline void set_timeout(int fd, int seconds) {
    timeval limit{};
    limit.tv_sec = seconds;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

inline void send_all(Socket& socket, std::span<const std::byte> data) {
    while (!data.empty()) {
        iovec piece{.iov_base = const_cast<std::byte*>(data.data()), .iov_len = data.size()};
        const ssize_t sent = socket.send(&piece, 1, 0);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN && socket.tls() != nullptr) {
            pollfd wait{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
            poll(&wait, 1, -1);
            continue;
        }
        if (sent < 0) fail_errno("send");
        data = data.subspan(static_cast<std::size_t>(sent));
    }
}

inline void receive_all(Socket& socket, std::span<std::byte> data) {
    while (!data.empty()) {
        const ssize_t got = socket.receive(data.data(), data.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            fail("the server does not answer");
        if (got < 0) fail_errno("recv");
        if (got == 0) fail("the server closed the connection");
        data = data.subspan(static_cast<std::size_t>(got));
    }
}

struct ExportInfo {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
    std::uint32_t min_block = 1;
    std::uint32_t max_payload = protocol::max_payload;
};

namespace detail {

namespace wire = protocol::wire;

struct OptionAnswer {
    wire::OptionReplyHeader header;
    std::vector<std::byte> data;

    std::string text() const { return {reinterpret_cast<const char*>(data.data()), data.size()}; }
};

inline OptionAnswer receive_option_reply(Socket& socket, std::uint32_t option) {
    std::array<std::byte, wire::option_reply_size> bytes;
    receive_all(socket, bytes);
    const auto header = wire::parse_option_reply(bytes);
    if (!header) fail("handshake: wrong magic in an option reply");
    if (header->option != option) fail("handshake: a reply to an option that was not sent");
    if (header->length > protocol::max_drained_option)
        fail("handshake: an option reply with an invalid length");
    OptionAnswer answer{.header = *header, .data = std::vector<std::byte>(header->length)};
    receive_all(socket, answer.data);
    return answer;
}

inline OptionAnswer ask(Socket& socket, std::uint32_t option, const wire::Bytes& data = {}) {
    send_all(socket, wire::option(option, data));
    return receive_option_reply(socket, option);
}

}  // namespace detail

// Negotiates fixed newstyle, GO with block sizes, and optionally TLS (null: none) and structured
// replies.
inline ExportInfo negotiate(Socket& socket, const std::string& name, bool structured,
                            const TlsContext* tls) {
    namespace wire = protocol::wire;
    std::array<std::byte, wire::greeting_size> greeting;
    receive_all(socket, greeting);
    const auto server_flags = wire::parse_greeting(greeting);
    if (!server_flags) fail("handshake: this is not a newstyle NBD server");
    if ((*server_flags & protocol::flag_fixed_newstyle) == 0)
        fail("handshake: the server does not speak fixed newstyle");
    send_all(socket, wire::client_flags(*server_flags));

    if (tls != nullptr) {
        const auto answer = detail::ask(socket, wire::opt::starttls);
        if (answer.header.type != protocol::OptionReply::ack)
            fail("handshake: the server refused TLS: " + answer.text());
        socket.start_tls(*tls);
    }
    if (structured &&
        detail::ask(socket, wire::opt::structured).header.type != protocol::OptionReply::ack)
        fail("handshake: the server refused structured replies");

    ExportInfo info;
    bool described = false;
    constexpr auto block_size = static_cast<std::uint16_t>(protocol::InfoType::block_size);
    auto answer = detail::ask(socket, wire::opt::go, wire::info_data(name, {block_size}));
    for (; answer.header.type != protocol::OptionReply::ack;
         answer = detail::receive_option_reply(socket, wire::opt::go)) {
        if (answer.header.is_error())
            fail("handshake: the server refused export \"" + name + "\" (error " +
                 std::to_string(static_cast<std::uint32_t>(answer.header.type) & 0x7fffffffU) +
                 ") " + answer.text());
        if (answer.header.type != protocol::OptionReply::info) continue;
        if (const auto facts = wire::parse_info_export(answer.data)) {
            info.size = facts->size;
            info.flags = facts->flags;
            described = true;
        } else if (const auto blocks = wire::parse_info_block_size(answer.data)) {
            info.min_block = blocks->minimum;
            info.max_payload = blocks->maximum;
        }
    }
    if (!described) fail("handshake: no NBD_INFO_EXPORT before the end of GO");
    return info;
}

inline void disconnect(Socket& socket) {
    std::array<std::byte, protocol::request_size> request;
    protocol::encode_request({.type = static_cast<std::uint16_t>(protocol::CommandType::disc)},
                             request);
    // Errors are ignored, because the peer may have closed the connection.
    iovec piece{.iov_base = request.data(), .iov_len = request.size()};
    (void)socket.send(&piece, 1, MSG_DONTWAIT);
}

}  // namespace gpunbd::bench
