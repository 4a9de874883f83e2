#include "address.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <memory>

namespace gpunbd::attach {
namespace {

// How long a call may wait (in `connect`, too); 0: for ever.
void set_patience(int fd, int seconds) {
    const timeval time{.tv_sec = seconds, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

int connect_within(int fd, const sockaddr* to, socklen_t length) {
    constexpr int patience = 5;
    set_patience(fd, patience);
    const int error = ::connect(fd, to, length) == 0 ? 0 : errno;
    set_patience(fd, 0);  // the kernel's client would keep to it as well
    return error == EINPROGRESS ? ETIMEDOUT : error;
}

Or<server::OwnedFd> dial_unix(const std::string& path) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    if (path.size() >= sizeof to.sun_path) return failure(path, ENAMETOOLONG);
    path.copy(to.sun_path, path.size());
    server::OwnedFd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (made.get() < 0) return failure("socket", errno);
    if (const int error = connect_within(made.get(), reinterpret_cast<sockaddr*>(&to), sizeof to)) {
        return failure(path, error);
    }
    return made;
}

Or<server::OwnedFd> dial_tcp(const Address& address) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int unknown = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &list);
    if (unknown != 0) return Failure{address.host + ": " + ::gai_strerror(unknown)};
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
    int error = ENOENT;
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
        server::OwnedFd made(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (made.get() < 0) {
            error = errno;
            continue;
        }
        error = connect_within(made.get(), each->ai_addr, each->ai_addrlen);
        if (error != 0) continue;
        const int on = 1;
        ::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        return made;
    }
    return failure(address.host + ":" + address.port, error);
}

}  // namespace

Or<Address> parse_address(std::string_view text) {
    if (text.find('/') != text.npos) return Address{.host = std::string(text), .port = {}};
    const std::size_t colon = text.rfind(':');
    if (colon == text.npos || colon == 0 || colon + 1 == text.size()) {
        return Failure{"'" + std::string(text) + "' is neither HOST:PORT nor a path"};
    }
    std::string_view host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    return Address{.host = std::string(host), .port = std::string(text.substr(colon + 1))};
}

Or<server::OwnedFd> dial(const Address& address) {
    return address.port.empty() ? dial_unix(address.host) : dial_tcp(address);
}

}  // namespace gpunbd::attach
