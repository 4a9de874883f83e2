#include "server/tools/client/address.hpp"

#include <netinet/in.h>
#include <sys/un.h>

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::client {
namespace {

bool is_loopback(const Address::SocketAddress& address) {
    if (address.storage.ss_family == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, &address.storage, sizeof in);
        return in.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && in.sin_port == htons(10809);
    }
    sockaddr_in6 in6{};
    std::memcpy(&in6, &address.storage, sizeof in6);
    return std::memcmp(&in6.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0 &&
           in6.sin6_port == htons(10809);
}

std::string remedy_of_dial(const config::NbdTarget& target) {
    const auto address = *resolve(target);
    const auto dialed = dial(address, Clock::now() + std::chrono::seconds(10));
    return dialed.error().remedy;
}

// A port without a listener. It stays bound while `holder` is open.
std::string silent_port(const OwnedFd& holder) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof in;
    REQUIRE(::bind(holder.get(), reinterpret_cast<const sockaddr*>(&in), length) == 0);
    REQUIRE(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&in), &length) == 0);
    return std::to_string(ntohs(in.sin_port));
}

TEST_CASE("address: localhost and its subdomains are loopback addresses without a name service") {
    for (const char* host :
         {"localhost", "LocalHost", "localhost.", "a.localhost", "b.a.localhost."}) {
        CAPTURE(host);
        const auto found = resolve({.host = host, .port = "10809"});
        REQUIRE(found.has_value());
        const auto& address = *found;
        CHECK(address.text == std::string(host) + ":10809");
        CHECK(!address.addresses.empty());
        for (const auto& each : address.addresses) CHECK(is_loopback(each));
    }
}

TEST_CASE("address: an unknown name has a remedy") {
    // A label longer than 63 characters, so that no name server is queried.
    const std::string host(64, 'a');
    const auto found = resolve({.host = host + ".invalid", .port = "10809"});
    REQUIRE(!found);
    CHECK(contains(found.error().remedy, "numeric address"));
}

TEST_CASE("address: a failed connection has a remedy") {
    const OwnedFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(remedy_of_dial({.host = "127.0.0.1", .port = silent_port(holder)}) ==
          "no server listens there; start one, or check address and port");

    const gpunbd::test::TemporaryFolder folder;
    const std::string path = folder.path("socket");
    CHECK(remedy_of_dial({.socket = path}) == "start the server, or check the path");
    const OwnedFd left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    path.copy(un.sun_path, sizeof un.sun_path - 1);
    REQUIRE(::bind(left.get(), reinterpret_cast<const sockaddr*>(&un), sizeof un) == 0);
    CHECK(remedy_of_dial({.socket = path}) ==
          "no server listens on this socket; start one, or check the path");
}

}  // namespace
}  // namespace gpunbd::client
