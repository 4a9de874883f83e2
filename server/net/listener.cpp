#include "server/net/listener.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "config/network.hpp"
#include "server/net/nbd_uri.hpp"
#include "server/net/tcp_address.hpp"
#include "server/net/unix_address.hpp"
#include "server/net/vsock_address.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace {

std::string_view remedy_of(int error) {
    switch (error) {
        case EMFILE:
            return "; lower limits.connections, or raise the limit of open files by LimitNOFILE= "
                   "(systemd), --ulimit nofile= (Docker) or ulimit -Hn (a shell)";
        case ENFILE:
            return "; raise the machine's limit of open files: sysctl fs.file-max";
        default:
            return {};
    }
}

}  // namespace

std::optional<std::string> AcceptFailures::text(int error, Clock::time_point now) {
    if (logged_at_ && now - *logged_at_ < interval) {
        ++omitted_;
        return std::nullopt;
    }
    logged_at_ = now;
    const std::uint64_t omitted = std::exchange(omitted_, 0);
    return fmt::format(
        "cannot accept clients, which wait: {}{}{}", std::strerror(error),
        omitted == 0 ? "" : fmt::format(" ({} more times since the last line)", omitted),
        remedy_of(error));
}

namespace asio = boost::asio;

namespace {

constexpr int backlog = 1024;
constexpr auto accept_again_after = std::chrono::milliseconds(100);

asio::posix::stream_descriptor socket_on(asio::io_context& io, OwnedFd fd) {
    asio::posix::stream_descriptor socket(io, fd.get());
    static_cast<void>(fd.release());  // the socket owns it now
    return socket;
}

std::optional<sockaddr_storage> bound_address(int fd) {
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return std::nullopt;
    return bound;
}

// None: it is no address of TCP.
std::optional<config::TcpListener> tcp_address(const sockaddr_storage& bound) {
    config::IpAddress address;
    if (bound.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(bound);
        std::memcpy(address.bytes.data(), &in.sin_addr, sizeof in.sin_addr);
        return config::TcpListener{.address = address.text(), .port = ntohs(in.sin_port)};
    }
    if (bound.ss_family != AF_INET6) return std::nullopt;
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(bound);
    address.v6 = true;
    std::memcpy(address.bytes.data(), &in6.sin6_addr, sizeof in6.sin6_addr);
    return config::TcpListener{.address = address.text(), .port = ntohs(in6.sin6_port)};
}

}  // namespace

bool is_listening(int fd) {
    int listening = 0;
    socklen_t length = sizeof listening;
    return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening != 0;
}

std::unique_ptr<Listener> Listener::tcp(asio::io_context& io, const config::TcpListener& options) {
    OwnedFd fd = bind_tcp(options);
    // Two sockets may bind the address before either listens.
    if (::listen(fd.get(), backlog) != 0) throw tcp_error(options, errno);
    return std::unique_ptr<Listener>(new Listener(io, std::move(fd), name_of(options), {}));
}

std::unique_ptr<Listener> Listener::unix_socket(asio::io_context& io,
                                                const config::UnixListener& options,
                                                bool leave_file) {
    BoundUnix bound = bind_unix(options);
    std::unique_ptr<Listener> listener(
        new Listener(io, std::move(bound.fd), name_of(options), std::move(bound.file)));
    open_to_clients(options);
    if (::listen(listener->socket_.native_handle(), backlog) != 0) {
        throw std::runtime_error(
            fmt::format("{}: cannot listen there: {}", listener->where_, std::strerror(errno)));
    }
    if (leave_file) listener->file_.leave();
    return listener;
}

std::unique_ptr<Listener> Listener::vsock(asio::io_context& io,
                                          const config::VsockListener& options) {
    OwnedFd fd = bind_vsock(options);
    if (::listen(fd.get(), backlog) != 0) throw vsock_error(options, errno);
    if (!local_cid()) spdlog::warn("{}: {}", name_of(options), no_vsock_transport());
    return std::unique_ptr<Listener>(new Listener(io, std::move(fd), name_of(options), {}));
}

std::unique_ptr<Listener> Listener::inherited(asio::io_context& io, OwnedFd fd) {
    const std::string where = fmt::format("inherited socket {}", fd.get());
    if (!is_listening(fd.get())) {
        throw std::runtime_error(where +
                                 ": it does not listen; only listening sockets can be used");
    }
    return std::unique_ptr<Listener>(new Listener(io, std::move(fd), where, {}));
}

std::unique_ptr<Listener> Listener::taken_over(asio::io_context& io, OwnedFd fd,
                                               const std::string& where) {
    return std::unique_ptr<Listener>(new Listener(io, std::move(fd), where, {}));
}

Listener::Listener(asio::io_context& io, OwnedFd fd, std::string where, SocketFile file)
    : socket_(socket_on(io, std::move(fd))),
      timer_(io),
      where_(std::move(where)),
      file_(std::move(file)) {
    socket_.native_non_blocking(true);
}

Listener::~Listener() { stop(); }

std::optional<std::string> Listener::uri(const std::string& export_name, bool tls) {
    return listener_uri(socket_.native_handle(), export_name, tls);
}

std::optional<std::string> Listener::public_address() {
    const auto bound = bound_address(socket_.native_handle());
    if (!bound) return where_;
    const auto tcp = tcp_address(*bound);
    if (!tcp || config::parse_ip(tcp->address)->loopback()) return std::nullopt;
    return where_;
}

void Listener::add_to(config::ServerAddresses& all) {
    const auto bound = bound_address(socket_.native_handle());
    if (!bound) return;
    if (auto tcp = tcp_address(*bound)) {
        // A socket of systemd may take both.
        if (tcp->address == "::") all.tcp.push_back({.address = "0.0.0.0", .port = tcp->port});
        all.tcp.push_back(std::move(*tcp));
    }
    if (bound->ss_family == AF_UNIX) {
        all.sockets.emplace_back(reinterpret_cast<const sockaddr_un&>(*bound).sun_path);
    }
}

void Listener::start(OnAccept on_accept, std::string line, spdlog::level::level_enum level) {
    spdlog::log(level, "{}", line.empty() ? "listening on " + where_ : line);
    GPUNBD_ASSERT(!on_accept_, "a listener starts once");
    on_accept_ = std::move(on_accept);
    wait_for_client();
}

void Listener::wait_for_client() noexcept {
    if (pausing_) return;
    for (;;) {
        try {
            socket_.async_wait(asio::posix::stream_descriptor::wait_read, then(&Listener::accept));
            return;
        } catch (const std::bad_alloc&) {
            std::this_thread::sleep_for(accept_again_after);  // a timer would allocate memory
        }
    }
}

void Listener::pause() noexcept {
    pausing_ = true;
    boost::system::error_code ignored;
    socket_.cancel(ignored);
    timer_.cancel();
}

void Listener::resume() noexcept {
    pausing_ = false;
    wait_for_client();
}

void Listener::accept() noexcept {
    if (pausing_) return;
    try {
        if (!accept_one()) return accept_later();
    } catch (const std::exception&) {
        std::this_thread::sleep_for(accept_again_after);
    }
    wait_for_client();
}

void Listener::accept_later() {
    timer_.expires_after(accept_again_after);
    timer_.async_wait(then(&Listener::wait_for_client));
}

bool Listener::accept_one() {
    OwnedFd fd(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
        Peer peer = peer_of(fd.get(), where_);
        GPUNBD_ASSERT(on_accept_, "a listener accepts after its start");
        on_accept_(std::move(fd), std::move(peer));
        return true;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return true;
    const int error = errno;
    if (const auto text = failures_.text(error, AcceptFailures::Clock::now())) {
        storage::LogLine(spdlog::level::err)
            .with("error", std::strerror(error))
            .log("{}: {}", where_, *text);
    }
    return false;
}

void Listener::stop() noexcept {
    file_.remove();
    boost::system::error_code ignored;
    socket_.close(ignored);
}

}  // namespace gpunbd::server
