// Connected sockets.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace gpunbd::test {

inline std::pair<int, int> unix_pair() {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
    return {both[0], both[1]};
}

// The first one has connected, the other one was accepted.
inline std::pair<int, int> tcp_pair() {
    const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(listening, generic, length) == 0);
    REQUIRE(::listen(listening, 1) == 0);
    REQUIRE(::getsockname(listening, generic, &length) == 0);
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(::connect(client, generic, length) == 0);
    const int server = ::accept(listening, nullptr, nullptr);
    REQUIRE(server >= 0);
    ::close(listening);
    return {client, server};
}

}  // namespace gpunbd::test
