// The client side of the NBD protocol: address, handshake, and encoding of requests. Set-up code
// throws std::runtime_error with a readable text. Only the encoding is on the measured path.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/constants.hpp"
#include "tests/bench/tls_client.hpp"

namespace gpunbd::bench {

template <typename Value>
Value big_endian(Value value) {
    if constexpr (std::endian::native == std::endian::big || sizeof(Value) == 1) return value;
    if constexpr (sizeof(Value) == 2) return __builtin_bswap16(value);
    if constexpr (sizeof(Value) == 4) return __builtin_bswap32(value);
    if constexpr (sizeof(Value) == 8) return __builtin_bswap64(value);
}

template <typename Value>
void store(unsigned char* to, Value value) {
    value = big_endian(value);
    std::memcpy(to, &value, sizeof(value));
}

template <typename Value>
Value load(const unsigned char* from) {
    Value value;
    std::memcpy(&value, from, sizeof(value));
    return big_endian(value);
}

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }
[[noreturn]] inline void fail_errno(const std::string& what) {
    fail(what + ": " + std::strerror(errno));
}

class Socket {
 public:
    Socket() = default;
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept
        : fd_(std::exchange(other.fd_, -1)), tls_(std::move(other.tls_)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(tls_, other.tls_);
        return *this;
    }
    ~Socket() {
        if (fd_ >= 0) close(fd_);
    }
    int fd() const { return fd_; }

    void start_tls(const TlsContext& context) { tls_ = std::make_unique<TlsClient>(context, fd_); }
    // null: no TLS
    const TlsClient* tls() const { return tls_.get(); }

    // Like sendmsg() without SIGPIPE, and recv(). With TLS a send never blocks.
    ssize_t send(iovec* pieces, std::size_t count, int flags) {
        if (tls_) return tls_->send(pieces, count);
        msghdr message{};
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        return sendmsg(fd_, &message, MSG_NOSIGNAL | flags);
    }
    ssize_t receive(void* into, std::size_t room, int flags) {
        return tls_ ? tls_->receive(into, room, flags) : recv(fd_, into, room, flags);
    }
    // Returns true if TLS has buffered data that a poll of the socket does not report.
    bool pending() const { return tls_ && tls_->pending(); }

 private:
    int fd_ = -1;
    std::unique_ptr<TlsClient> tls_;
};

struct Address {
    bool is_unix = false;
    bool tls = false;
    std::string path;  // of the socket
    std::string host;
    std::string port = "10809";
    std::string name;  // of the export
};

inline std::string percent_decode(std::string_view text) {
    const auto digit = [](char c) {
        if (c >= '0' && c <= '9') return c - '0';
        if (c >= 'a' && c <= 'f') return c - 'a' + 10;
        if (c >= 'A' && c <= 'F') return c - 'A' + 10;
        return -1;
    };
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
            digit(text[i + 2]) >= 0) {
            out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

// Accepts nbd://host[:port]/name and nbd+unix:///name?socket=path, and nbds for TLS.
inline Address parse_uri(std::string_view uri) {
    Address address;
    address.tls = uri.starts_with("nbds");
    const std::string in_the_clear =
        address.tls ? "nbd" + std::string(uri.substr(4)) : std::string(uri);
    uri = in_the_clear;
    constexpr std::string_view tcp_scheme = "nbd://";
    constexpr std::string_view unix_scheme = "nbd+unix://";
    const auto name_of = [](std::string_view path) {
        return percent_decode(path.starts_with('/') ? path.substr(1) : path);
    };
    if (uri.starts_with(unix_scheme)) {
        address.is_unix = true;
        uri.remove_prefix(unix_scheme.size());
        const auto query = uri.find("?socket=");
        if (query == uri.npos) fail("a nbd+unix URI needs ?socket=PATH");
        address.name = name_of(uri.substr(0, query));
        address.path = percent_decode(uri.substr(query + 8));
    } else if (uri.starts_with(tcp_scheme)) {
        uri.remove_prefix(tcp_scheme.size());
        const auto slash = uri.find('/');
        if (slash != uri.npos) address.name = name_of(uri.substr(slash));
        auto authority = uri.substr(0, slash);
        auto colon = authority.rfind(':');
        if (authority.starts_with('[')) {
            const auto bracket = authority.find(']');
            if (bracket == authority.npos) fail("the URI's '[' has no ']'");
            address.host = authority.substr(1, bracket - 1);
            if (colon != authority.npos && colon < bracket) colon = authority.npos;
        } else {
            address.host = authority.substr(0, colon);
        }
        if (colon != authority.npos) address.port = authority.substr(colon + 1);
    } else {
        fail("the URI must begin with nbd://, nbd+unix://, nbds:// or nbds+unix://");
    }
    return address;
}

inline Socket connect_to(const Address& address) {
    if (address.is_unix) {
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        if (address.path.size() >= sizeof(name.sun_path)) fail("the socket's path is too long");
        address.path.copy(name.sun_path, address.path.size());
        Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (socket.fd() < 0) fail_errno("socket");
        if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0)
            fail_errno("connect to " + address.path);
        return socket;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
    if (error != 0) fail(address.host + ": " + gai_strerror(error));
    Socket socket;
    int connect_errno = ENOENT;
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
        Socket attempt(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (attempt.fd() >= 0 && connect(attempt.fd(), each->ai_addr, each->ai_addrlen) == 0) {
            socket = std::move(attempt);
            break;
        }
        connect_errno = errno;
    }
    freeaddrinfo(found);
    errno = connect_errno;
    if (socket.fd() < 0) fail_errno("connect to " + address.host + ":" + address.port);
    const int one = 1;
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return socket;
}

// Limits how long a call may block on the socket; 0: no limit.
inline void set_timeout(int fd, int seconds) {
    timeval limit{};
    limit.tv_sec = seconds;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

inline void send_all(Socket& socket, const unsigned char* data, std::size_t size) {
    while (size > 0) {
        iovec piece{.iov_base = const_cast<unsigned char*>(data), .iov_len = size};
        const ssize_t sent = socket.send(&piece, 1, 0);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN && socket.tls() != nullptr) {
            pollfd wait{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
            poll(&wait, 1, -1);
            continue;
        }
        if (sent < 0) fail_errno("send");
        data += sent;
        size -= static_cast<std::size_t>(sent);
    }
}

inline void receive_all(Socket& socket, unsigned char* data, std::size_t size) {
    while (size > 0) {
        const ssize_t got = socket.receive(data, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            fail("the server does not answer");
        if (got < 0) fail_errno("recv");
        if (got == 0) fail("the server closed the connection");
        data += got;
        size -= static_cast<std::size_t>(got);
    }
}

struct ExportInfo {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
    std::uint32_t min_block = 1;
    std::uint32_t max_payload = protocol::max_payload;
};

namespace detail {

inline void send_option(Socket& socket, protocol::OptionType type,
                        const std::vector<unsigned char>& data) {
    std::vector<unsigned char> message(16);
    store(message.data(), protocol::option_magic);
    store(message.data() + 8, static_cast<std::uint32_t>(type));
    store(message.data() + 12, static_cast<std::uint32_t>(data.size()));
    message.insert(message.end(), data.begin(), data.end());
    send_all(socket, message.data(), message.size());
}

struct OptionAnswer {
    protocol::OptionReply type{};
    std::vector<unsigned char> data;
};

inline OptionAnswer receive_option_reply(Socket& socket, protocol::OptionType option) {
    unsigned char header[20];
    receive_all(socket, header, sizeof(header));
    if (load<std::uint64_t>(header) != protocol::option_reply_magic)
        fail("handshake: wrong magic in an option reply");
    if (load<std::uint32_t>(header + 8) != static_cast<std::uint32_t>(option))
        fail("handshake: a reply to an option that was not sent");
    const auto length = load<std::uint32_t>(header + 16);
    if (length > protocol::max_drained_option)
        fail("handshake: an option reply with an invalid length");
    OptionAnswer answer{.type = protocol::OptionReply{load<std::uint32_t>(header + 12)},
                        .data = std::vector<unsigned char>(length)};
    receive_all(socket, answer.data.data(), length);
    return answer;
}

inline bool is_error(protocol::OptionReply type) {
    return (static_cast<std::uint32_t>(type) >> 31) != 0;
}

}  // namespace detail

// Negotiates fixed newstyle, GO with block sizes, and optionally TLS (null: none) and structured
// replies.
inline ExportInfo negotiate(Socket& socket, const std::string& name, bool structured,
                            const TlsContext* tls) {
    unsigned char greeting[18];
    receive_all(socket, greeting, sizeof(greeting));
    if (load<std::uint64_t>(greeting) != protocol::init_magic ||
        load<std::uint64_t>(greeting + 8) != protocol::option_magic)
        fail("handshake: this is not a newstyle NBD server");
    const auto server_flags = load<std::uint16_t>(greeting + 16);
    if ((server_flags & protocol::flag_fixed_newstyle) == 0)
        fail("handshake: the server does not speak fixed newstyle");
    unsigned char client_flags[4];
    store(client_flags, static_cast<std::uint32_t>(server_flags & (protocol::flag_fixed_newstyle |
                                                                   protocol::flag_no_zeroes)));
    send_all(socket, client_flags, sizeof(client_flags));

    if (tls != nullptr) {
        detail::send_option(socket, protocol::OptionType::starttls, {});
        const auto answer = detail::receive_option_reply(socket, protocol::OptionType::starttls);
        if (answer.type != protocol::OptionReply::ack)
            fail("handshake: the server refused TLS: " +
                 std::string(answer.data.begin(), answer.data.end()));
        socket.start_tls(*tls);
    }
    if (structured) {
        detail::send_option(socket, protocol::OptionType::structured_reply, {});
        const auto answer =
            detail::receive_option_reply(socket, protocol::OptionType::structured_reply);
        if (answer.type != protocol::OptionReply::ack)
            fail("handshake: the server refused structured replies");
    }

    std::vector<unsigned char> go(4 + name.size() + 4);
    store(go.data(), static_cast<std::uint32_t>(name.size()));
    std::memcpy(go.data() + 4, name.data(), name.size());
    store(go.data() + 4 + name.size(), std::uint16_t{1});
    store(go.data() + 6 + name.size(), static_cast<std::uint16_t>(protocol::InfoType::block_size));
    detail::send_option(socket, protocol::OptionType::go, go);

    ExportInfo info;
    bool described = false;
    for (;;) {
        const auto answer = detail::receive_option_reply(socket, protocol::OptionType::go);
        if (detail::is_error(answer.type))
            fail("handshake: the server refused export \"" + name + "\" (error " +
                 std::to_string(static_cast<std::uint32_t>(answer.type) & 0x7fffffffU) + ") " +
                 std::string(answer.data.begin(), answer.data.end()));
        if (answer.type == protocol::OptionReply::ack) break;
        if (answer.type != protocol::OptionReply::info || answer.data.size() < 2) continue;
        const auto type = protocol::InfoType{load<std::uint16_t>(answer.data.data())};
        if (type == protocol::InfoType::export_ && answer.data.size() == 12) {
            info.size = load<std::uint64_t>(answer.data.data() + 2);
            info.flags = load<std::uint16_t>(answer.data.data() + 10);
            described = true;
        } else if (type == protocol::InfoType::block_size && answer.data.size() == 14) {
            info.min_block = load<std::uint32_t>(answer.data.data() + 2);
            info.max_payload = load<std::uint32_t>(answer.data.data() + 10);
        }
    }
    if (!described) fail("handshake: no NBD_INFO_EXPORT before the end of GO");
    return info;
}

inline void encode_request(unsigned char* to, protocol::CommandType type, std::uint64_t cookie,
                           std::uint64_t offset, std::uint32_t length) {
    store(to, protocol::request_magic);
    store(to + 4, std::uint16_t{0});
    store(to + 6, static_cast<std::uint16_t>(type));
    store(to + 8, cookie);
    store(to + 16, offset);
    store(to + 24, length);
}

inline void disconnect(Socket& socket) {
    unsigned char request[protocol::request_size];
    encode_request(request, protocol::CommandType::disc, 0, 0, 0);
    // Errors are ignored, because the peer may have closed the connection.
    iovec piece{.iov_base = request, .iov_len = sizeof(request)};
    (void)socket.send(&piece, 1, MSG_DONTWAIT);
}

}  // namespace gpunbd::bench
