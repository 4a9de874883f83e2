#include "server/attach/address.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace gpunbd::attach {
namespace {

// How long a call may wait (in `connect`, too); 0: for ever.
void set_patience(int fd, int seconds) {
    const timeval time{.tv_sec = seconds, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

int connect_within(int fd, const Address::Place& to) {
    constexpr int patience = 5;
    set_patience(fd, patience);
    const auto* const where = reinterpret_cast<const sockaddr*>(&to.where);
    const int error = ::connect(fd, where, to.length) == 0 ? 0 : errno;
    set_patience(fd, 0);  // the kernel's client would keep to it as well
    return error == EINPROGRESS ? ETIMEDOUT : error;
}

Address unix_address(const std::string& path) {
    Address::Place place;
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path.copy(to.sun_path, sizeof to.sun_path - 1);
    std::memcpy(&place.where, &to, sizeof to);
    place.length = sizeof to;
    return {.text = path, .places = {place}};
}

Or<Address> tcp_address(const server::NbdTarget& target) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int unknown = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &wanted, &list);
    if (unknown != 0) return Failure{target.host + ": " + ::gai_strerror(unknown)};
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
    const bool ipv6 = target.host.find(':') != std::string::npos;
    Address out{.text = (ipv6 ? "[" + target.host + "]" : target.host) + ":" + target.port,
                .places = {}};
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
        Address::Place& place = out.places.emplace_back();
        std::memcpy(&place.where, each->ai_addr, each->ai_addrlen);
        place.length = each->ai_addrlen;
    }
    return out;
}

}  // namespace

Or<Address> look_up(const server::NbdTarget& target) {
    if (target.host.empty()) return unix_address(target.socket);
    return tcp_address(target);
}

Or<server::OwnedFd> dial(const Address& address) {
    int error = ENOENT;
    for (const Address::Place& place : address.places) {
        server::OwnedFd made(::socket(place.where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (made.get() < 0) {
            error = errno;
            continue;
        }
        error = connect_within(made.get(), place);
        if (error != 0) continue;
        const int on = 1;
        if (place.where.ss_family != AF_UNIX) {
            ::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        }
        return made;
    }
    return failure(address.text, error);
}

}  // namespace gpunbd::attach
