#include "server/net/transport/transport.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "server/net/transport/tls_stream.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

// Bytes that TCP accepts but cannot send yet. With more, the data has left the CPU's cache by the
// time that a fast client reads it.
constexpr int unsent_over_tcp = 1 << 20;
constexpr int keepalives = 127;       // the maximum: keepalives do not end connections here
constexpr int unix_buffer = 2 << 20;  // bytes; the default holds fewer than 32 requests of 4 KiB

void set(int fd, int level, int option, int value) {
    ::setsockopt(fd, level, option, &value,
                 sizeof value);  // an optimization, so errors are ignored
}

Transport::Result result_of(ssize_t bytes, Transport::Wait wait) {
    if (bytes > 0) return {.bytes = static_cast<std::size_t>(bytes)};
    if (bytes == 0) return {.ended = true};
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {.wait = wait};
    return {.ended = true, .error = errno};
}

}  // namespace

Transport::Transport(Socket socket) : socket_(std::move(socket)) {
    const int fd = socket_.native_handle();
    boost::system::error_code ignored;
    socket_.native_non_blocking(true, ignored);
    socklen_t length = sizeof family_;
    ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family_, &length);
    if (family_ == AF_UNIX) {
        set(fd, SOL_SOCKET, SO_SNDBUF, unix_buffer);
        set(fd, SOL_SOCKET, SO_RCVBUF, unix_buffer);
    } else if (family_ == AF_INET || family_ == AF_INET6) {
        set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_over_tcp);
        set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    }
}

Transport::~Transport() = default;

TlsStream& Transport::start_tls(std::shared_ptr<const TlsContext> context,
                                Pool<ReceiveBuffer>& buffers) {
    GPUNBD_ASSERT(tls_ == nullptr, "TLS starts once on a connection");
    tls_ = std::make_unique<TlsStream>(std::move(context), socket_.native_handle(), buffers);
    return *tls_;
}

Transport::Result Transport::receive(std::span<iovec> into) {
    if (tls_ != nullptr) [[unlikely]]
        return tls_->receive(into);
    return receive_from(socket_.native_handle(), into);
}

Transport::Result Transport::send(std::span<iovec> from) {
    if (tls_ != nullptr) [[unlikely]]
        return tls_->send(from);
    return send_to(socket_.native_handle(), from);
}

void Transport::begin_serving() {
    if (tls_ != nullptr) tls_->begin_serving();
}

std::string_view Transport::failure() const {
    return tls_ != nullptr ? std::string_view(tls_->failure()) : std::string_view();
}

std::size_t Transport::memory() const { return tls_ != nullptr ? tls_->memory() : 0; }

std::size_t Transport::release_memory() noexcept {
    if (tls_ == nullptr) return 0;
    tls_->release_memory();
    return tls_->memory();
}

Transport::Result Transport::receive_from(int fd, std::span<iovec> into) {
    msghdr message{};
    message.msg_iov = into.data();
    message.msg_iovlen = into.size();
    return result_of(::recvmsg(fd, &message, MSG_DONTWAIT), Wait::readable);
}

Transport::Result Transport::send_to(int fd, std::span<iovec> from) {
    msghdr message{};
    message.msg_iov = from.data();
    message.msg_iovlen = from.size();
    return result_of(::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL), Wait::writable);
}

bool Transport::enable_keepalive(std::chrono::seconds limit) noexcept {
    const int fd = socket_.native_handle();
    const auto seconds = static_cast<int>(limit.count());
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, keepalives);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 8));
    const int idle = std::max(1, seconds / 2);
    return ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0;
}

bool Transport::silent_for(std::chrono::milliseconds time) noexcept {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
        return false;
    }
    return (info.tcpi_retransmits != 0 || info.tcpi_probes != 0) &&
           std::chrono::milliseconds(info.tcpi_last_ack_recv) >= time;
}

bool Transport::hung_up() noexcept {
    pollfd peer{.fd = socket_.native_handle(), .events = 0, .revents = 0};
    return ::poll(&peer, 1, 0) > 0;
}

void Transport::stop_receiving() noexcept {
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_receive, ignored);
}

void Transport::leave() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
}

void Transport::close() noexcept {
    if (tls_ != nullptr) tls_->say_goodbye();
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
}

}  // namespace gpunbd::server
