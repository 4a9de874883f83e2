#include "server/listener.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr int backlog = 1024;
constexpr auto back_off = std::chrono::milliseconds(100);

// A descriptor that is closed unless it is released.
class OwnedFd {
 public:
    explicit OwnedFd(int fd) : fd_(fd) {}
    ~OwnedFd() {
        if (fd_ >= 0) ::close(fd_);
    }
    OwnedFd(const OwnedFd&) = delete;
    OwnedFd& operator=(const OwnedFd&) = delete;
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }

 private:
    int fd_;
};

[[noreturn]] void fail(const std::string& where, const char* what) {
    throw std::runtime_error(fmt::format("{}: {}: {}", where, what, std::strerror(errno)));
}

int listen_on(OwnedFd& fd, const sockaddr* address, socklen_t length, const std::string& where) {
    if (fd.get() < 0) fail(where, "cannot create a socket");
    if (::bind(fd.get(), address, length) != 0) fail(where, "cannot listen there");
    if (::listen(fd.get(), backlog) != 0) fail(where, "cannot listen there");
    return fd.release();
}

// A socket file that nobody listens on any more is in the way; one that is in use is not ours.
void remove_stale_socket(const sockaddr_un& address, const std::string& where) {
    struct stat file {};
    if (::lstat(address.sun_path, &file) != 0) return;
    if (!S_ISSOCK(file.st_mode)) {
        throw std::runtime_error(where + ": a file that is no socket is in the way");
    }
    // A server whose backlog is full is there all the same, and is not waited for.
    const OwnedFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
        errno == EAGAIN) {
        throw std::runtime_error(where + ": another server is listening there");
    }
    if (errno == ECONNREFUSED) ::unlink(address.sun_path);
}

void give_to(const std::string& path, const std::string& owner, const std::string& where) {
    const std::size_t colon = owner.find(':');
    const std::string user = owner.substr(0, colon);
    uid_t uid = static_cast<uid_t>(-1);
    gid_t gid = static_cast<gid_t>(-1);
    if (!user.empty()) {
        const passwd* entry = ::getpwnam(user.c_str());
        if (entry == nullptr) throw std::runtime_error(where + ": there is no user " + user);
        uid = entry->pw_uid;
    }
    if (colon != std::string::npos) {
        const std::string name = owner.substr(colon + 1);
        const group* entry = ::getgrnam(name.c_str());
        if (entry == nullptr) throw std::runtime_error(where + ": there is no group " + name);
        gid = entry->gr_gid;
    }
    if (::chown(path.c_str(), uid, gid) != 0) fail(where, "cannot give the socket to its owner");
}

}  // namespace

std::unique_ptr<Listener> Listener::tcp(asio::io_context& io, const config::TcpListener& options) {
    sockaddr_in in{};
    sockaddr_in6 in6{};
    const bool v6 = options.address.find(':') != std::string::npos;
    const std::string where = v6 ? fmt::format("[{}]:{}", options.address, options.port)
                                 : fmt::format("{}:{}", options.address, options.port);
    const int parsed = v6 ? ::inet_pton(AF_INET6, options.address.c_str(), &in6.sin6_addr)
                          : ::inet_pton(AF_INET, options.address.c_str(), &in.sin_addr);
    if (parsed != 1) throw std::runtime_error(where + ": not a numeric IPv4 or IPv6 address");
    OwnedFd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (v6) {
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(options.port);
    } else {
        in.sin_family = AF_INET;
        in.sin_port = htons(options.port);
    }
    const int listening = v6 ? listen_on(fd, reinterpret_cast<sockaddr*>(&in6), sizeof in6, where)
                             : listen_on(fd, reinterpret_cast<sockaddr*>(&in), sizeof in, where);
    return std::unique_ptr<Listener>(new Listener(io, listening, where, {}));
}

std::unique_ptr<Listener> Listener::unix_socket(asio::io_context& io,
                                                const config::UnixListener& options) {
    const std::string where = "unix socket " + options.path;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (options.path.empty() || options.path.size() >= sizeof address.sun_path) {
        throw std::runtime_error(
            fmt::format("{}: a path must have 1 to {} bytes", where, sizeof address.sun_path - 1));
    }
    std::memcpy(address.sun_path, options.path.data(), options.path.size());
    remove_stale_socket(address, where);
    OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // Nobody may slip in between bind() and chmod().
    const mode_t before = ::umask(0777);
    const int bound = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    const int bind_error = errno;
    ::umask(before);
    errno = bind_error;
    if (bound != 0) fail(where, "cannot listen there");
    std::unique_ptr<Listener> listener(new Listener(io, fd.release(), where, options.path));
    if (!options.owner.empty()) give_to(options.path, options.owner, where);
    if (::chmod(options.path.c_str(), options.mode) != 0) fail(where, "cannot set its mode");
    if (::listen(listener->socket_.native_handle(), backlog) != 0)
        fail(where, "cannot listen there");
    return listener;
}

std::unique_ptr<Listener> Listener::inherited(asio::io_context& io, int fd) {
    const std::string where = fmt::format("inherited socket {}", fd);
    int listening = 0;
    socklen_t length = sizeof listening;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
        throw std::runtime_error(where +
                                 ": it does not listen; only listening sockets can be used");
    }
    return std::unique_ptr<Listener>(new Listener(io, fd, where, {}));
}

Listener::Listener(asio::io_context& io, int fd, std::string where, std::string unlink_path)
    : socket_(io, fd), where_(std::move(where)), unlink_path_(std::move(unlink_path)) {
    socket_.native_non_blocking(true);
}

Listener::~Listener() { stop(); }

void Listener::start(OnAccept on_accept) {
    spdlog::info("listening on {}", where_);
    asio::co_spawn(socket_.get_executor(), accept(std::make_shared<OnAccept>(std::move(on_accept))),
                   asio::detached);  // accept() handles its errors
}

// The coroutine may be resumed once more after the listener has gone: with an error, and then it
// touches nothing.
asio::awaitable<void> Listener::accept(std::shared_ptr<OnAccept> on_accept) {
    asio::steady_timer timer(socket_.get_executor());
    for (;;) {
        const auto [error] = co_await socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                                                         asio::as_tuple(asio::use_awaitable));
        if (error) co_return;
        const int fd =
            ::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            (*on_accept)(fd);
        } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            spdlog::error("{}: accept: {}", where_, std::strerror(errno));
            timer.expires_after(back_off);
            const auto [ignored] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
            static_cast<void>(ignored);
            if (!socket_.is_open()) co_return;
        }
    }
}

void Listener::stop() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
    if (!unlink_path_.empty()) ::unlink(unlink_path_.c_str());
    unlink_path_.clear();
}

}  // namespace gpunbd::server
