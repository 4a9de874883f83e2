#include "server/stream.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>

namespace gpunbd::server {

namespace {

// Bytes that TCP takes and cannot send yet. With more of them a client that reads fast finds what
// has left the cache long ago.
constexpr int unsent_over_tcp = 1 << 20;
constexpr int unix_buffer = 2 << 20;  // bytes; the default holds less than 32 requests of 4 KiB

std::string describe_peer(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
        return fmt::format("{}:{}", text.data(), ntohs(in.sin_port));
    }
    if (address.ss_family == AF_INET6) {
        const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
        return fmt::format("[{}]:{}", text.data(), ntohs(in.sin6_port));
    }
    ucred credentials{};
    length = sizeof credentials;
    if (address.ss_family == AF_UNIX &&
        ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0) {
        return fmt::format("unix:pid={},uid={}", credentials.pid, credentials.uid);
    }
    return "unknown";
}

void set(int fd, int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);  // an optimisation: failure is no error
}

template <typename Call>
Stream::Result attempt(Call call) {
    for (;;) {
        const ssize_t bytes = call();
        if (bytes > 0) return {.bytes = static_cast<std::size_t>(bytes)};
        if (bytes == 0) return {.ended = true};
        if (errno == EAGAIN || errno == EWOULDBLOCK) return {.would_block = true};
        if (errno != EINTR) return {.ended = true, .error = errno};
    }
}

}  // namespace

Stream::Stream(Socket socket) : socket_(std::move(socket)) {
    const int fd = socket_.native_handle();
    peer_ = describe_peer(fd);
    boost::system::error_code ignored;
    socket_.native_non_blocking(true, ignored);
    int family = 0;
    socklen_t length = sizeof family;
    ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
    if (family == AF_UNIX) {
        set(fd, SOL_SOCKET, SO_SNDBUF, unix_buffer);
        set(fd, SOL_SOCKET, SO_RCVBUF, unix_buffer);
    } else {
        set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_over_tcp);
        set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    }
}

Stream::Result Stream::receive(std::span<iovec> into) {
    msghdr message{};
    message.msg_iov = into.data();
    message.msg_iovlen = into.size();
    return attempt([&] { return ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT); });
}

Stream::Result Stream::send(std::span<iovec> from) {
    msghdr message{};
    message.msg_iov = from.data();
    message.msg_iovlen = from.size();
    return attempt(
        [&] { return ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
}

void Stream::stop_receiving() noexcept {
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_receive, ignored);
}

void Stream::close() noexcept {
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
}

}  // namespace gpunbd::server
