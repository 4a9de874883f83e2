#include "server/tools/client/address.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace gpunbd::client {

namespace {

// An errno; 0: it is connected.
int connect_until(int fd, const Address::SocketAddress& to, Deadline until) {
    const auto* const address = reinterpret_cast<const sockaddr*>(&to.storage);
    if (::connect(fd, address, to.length) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!wait_for_socket(fd, POLLOUT, until)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Address unix_address(const std::string& path) {
    Address::SocketAddress out;
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path.copy(to.sun_path, sizeof to.sun_path - 1);
    std::memcpy(&out.storage, &to, sizeof to);
    out.length = sizeof to;
    return {.text = path, .addresses = {out}};
}

Expected<Address, Failure> tcp_address(const config::NbdTarget& target) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    // getaddrinfo() gives the loopback addresses for a null host.
    const char* const host = config::is_localhost(target.host) ? nullptr : target.host.c_str();
    const int unknown = ::getaddrinfo(host, target.port.c_str(), &wanted, &list);
    if (unknown != 0) {
        return Failure{target.host + ": " + ::gai_strerror(unknown),
                       "check the name, or write the numeric address"};
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
    const bool ipv6 = target.host.find(':') != std::string::npos;
    Address out{.text = (ipv6 ? "[" + target.host + "]" : target.host) + ":" + target.port,
                .addresses = {}};
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
        Address::SocketAddress& to = out.addresses.emplace_back();
        std::memcpy(&to.storage, each->ai_addr, each->ai_addrlen);
        to.length = each->ai_addrlen;
    }
    return out;
}

// The failure with its remedy.
Failure failed_dial(const Address& address, int error) {
    Failure out = failure(address.text, error);
    const bool local =
        address.addresses.empty() || address.addresses[0].storage.ss_family == AF_UNIX;
    switch (error) {
        case ECONNREFUSED:
            out.remedy = local ? "no server listens on this socket; start one, or check the path"
                               : "no server listens there; start one, or check address and port";
            break;
        case ENOENT:
            out.remedy = "start the server, or check the path";
            break;
        case EACCES:
        case EPERM:
            if (local) out.remedy = "run this as the socket's owner, or as root";
            break;
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case ENETUNREACH:
            out.remedy = "check the address, the route, and the firewalls on the way";
            break;
        default:
            break;
    }
    return out;
}

}  // namespace

Expected<Address, Failure> resolve(const config::NbdTarget& target) {
    if (target.host.empty()) return unix_address(target.socket);
    return tcp_address(target);
}

Expected<OwnedFd, Failure> dial(const Address& address, Deadline until) {
    int error = ENOENT;
    auto left = static_cast<int>(address.addresses.size());
    for (const Address::SocketAddress& to : address.addresses) {
        const Clock::time_point now = Clock::now();
        const Deadline until_then = now + (until - now) / left--;
        OwnedFd made(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        error = made.get() < 0 ? errno : connect_until(made.get(), to, until_then);
        if (error != 0) continue;
        const int on = 1;
        if (to.storage.ss_family != AF_UNIX) {
            ::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        }
        return made;
    }
    return failed_dial(address, error);
}

}  // namespace gpunbd::client
