#include "server/base/peer.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "config/quote.hpp"

namespace gpunbd::server {

std::string TlsIdentity::text() const {
    if (!psk_user.empty()) return "user " + config::in_quotes(psk_user);
    std::string all;
    for (const std::string& name : names) {
        all += (all.empty() ? "certificate " : ", ") + config::in_quotes(name);
    }
    return all;
}

std::string Peer::text() const {
    switch (kind) {
        case Kind::tcp:
            return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                          : fmt::format("[{}]:{}", address, port);
        case Kind::unix_socket:
            return fmt::format("unix:pid={},uid={}", pid, uid);
        case Kind::vsock:
            return fmt::format("vsock:{}:{}", cid, port);
        case Kind::unknown:
            break;
    }
    return "unknown";
}

namespace {

// Empty if the system does not report them.
std::vector<gid_t> groups_of(int fd) {
    std::vector<gid_t> groups(32);
    for (;;) {
        auto length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
        const int done = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length);
        if (done != 0 && errno != ERANGE) return {};
        groups.resize(length / sizeof(gid_t));
        if (done == 0) return groups;
    }
}

}  // namespace

Peer peer_of(int fd, std::string listener) {
    Peer peer;
    peer.listener = std::move(listener);
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return peer;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
        peer.kind = Peer::Kind::tcp;
        peer.port = ntohs(in.sin_port);
    } else if (address.ss_family == AF_INET6) {
        const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &in6.sin6_addr, text.data(), text.size());
        peer.kind = Peer::Kind::tcp;
        peer.port = ntohs(in6.sin6_port);
    }
    peer.address = text.data();
    if (address.ss_family == AF_VSOCK) {
        const auto& vm = reinterpret_cast<const sockaddr_vm&>(address);
        peer.kind = Peer::Kind::vsock;
        peer.cid = vm.svm_cid;
        peer.port = vm.svm_port;
    }
    ucred credentials{};
    length = sizeof credentials;
    if (address.ss_family == AF_UNIX &&
        ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0) {
        peer.kind = Peer::Kind::unix_socket;
        peer.pid = credentials.pid;
        peer.uid = credentials.uid;
        peer.gid = credentials.gid;
        peer.groups = groups_of(fd);
    }
    return peer;
}

}  // namespace gpunbd::server
