// URIs of listening sockets.
#include "server/net/nbd_uri.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <regex>

#include "server/net/address_error.hpp"
#include "server/net/listener.hpp"
#include "server/net/vsock_address.hpp"

// Needs the types of <sys/socket.h>, which must be included first.
#include <linux/vm_sockets.h>

namespace gpunbd::server::test {
namespace {

// Returns the URI of a listener at `address`, with PORT in place of its port.
std::string uri_at(const char* address, const std::string& name, bool tls = false) {
    boost::asio::io_context io;
    try {
        const auto listener = Listener::tcp(io, {.address = address, .port = 0});
        const std::string uri = listener->uri(name, tls).value_or("no URI");
        return std::regex_replace(uri, std::regex(":[0-9]+(/|$)"), ":PORT$1");
    } catch (const AddressError&) {
        return "none";
    }
}

TEST_CASE("nbd uri: TCP") {
    CHECK(uri_at("127.0.0.1", "") == "nbd://127.0.0.1:PORT");
    CHECK(uri_at("127.0.0.2", "a b/c?") == "nbd://127.0.0.2:PORT/a%20b/c%3F");
    CHECK(uri_at("127.0.0.1", "x", true) == "nbds://127.0.0.1:PORT/x");
    CHECK(uri_at("0.0.0.0", "x") == "nbd://127.0.0.1:PORT/x");
    if (uri_at("::1", "") == "none") {
        MESSAGE("SKIPPED: there is no IPv6 here");
        return;
    }
    CHECK(uri_at("::1", "") == "nbd://[::1]:PORT");
    CHECK(uri_at("::", "") == "nbd://[::1]:PORT");
}

TEST_CASE("nbd uri: Unix sockets") {
    CHECK(unix_uri("/run/a b", "x&y") == "nbd+unix:///x%26y?socket=/run/a%20b");
    CHECK(unix_uri("/run/a", "x", true) == "nbds+unix:///x?socket=/run/a");
    const std::string relative = "gpunbd-nbd-uri-test";
    for (const std::string& path : {std::string("/tmp/gpunbd-nbd-uri-test"), relative}) {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        ::unlink(path.c_str());
        REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        CHECK(listener_uri(fd, "") == unix_uri(std::filesystem::absolute(path).string(), ""));
        ::unlink(path.c_str());
        ::close(fd);
    }
    // Abstract and unnamed sockets have no URI.
    const int nameless = ::socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_FALSE(listener_uri(nameless, "").has_value());
    sockaddr_un abstract{};
    abstract.sun_family = AF_UNIX;
    std::memcpy(abstract.sun_path + 1, "gpunbd-test", 11);
    REQUIRE(::bind(nameless, reinterpret_cast<sockaddr*>(&abstract),
                   offsetof(sockaddr_un, sun_path) + 12) == 0);
    CHECK_FALSE(listener_uri(nameless, "").has_value());
    ::close(nameless);
    CHECK_FALSE(listener_uri(-1, "").has_value());
}

TEST_CASE("nbd uri: vsock") {
    const int fd = ::socket(AF_VSOCK, SOCK_STREAM, 0);
    if (fd < 0) {
        MESSAGE("SKIPPED: this kernel has no vsock");
        return;
    }
    sockaddr_vm address{};
    address.svm_family = AF_VSOCK;
    address.svm_cid = VMADDR_CID_ANY;
    address.svm_port = VMADDR_PORT_ANY;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    socklen_t length = sizeof address;
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    const std::string own = std::to_string(local_cid().value_or(VMADDR_CID_LOCAL));
    const std::string place = own + ":" + std::to_string(address.svm_port);
    CHECK(listener_uri(fd, "") == "nbd+vsock://" + place + "/");
    CHECK(listener_uri(fd, "a b") == "nbd+vsock://" + place + "/a%20b");
    ::close(fd);
}

TEST_CASE("nbd uri: shell_word quotes only if necessary") {
    CHECK(shell_word("nbd://127.0.0.1:10809/a%20b") == "nbd://127.0.0.1:10809/a%20b");
    CHECK(shell_word("nbd://[::1]:10809") == "'nbd://[::1]:10809'");
    CHECK(shell_word("nbd+unix:///?socket=/s") == "'nbd+unix:///?socket=/s'");
    CHECK(shell_word("it's") == "'it'\\''s'");
    CHECK(shell_word("") == "''");
}

}  // namespace
}  // namespace gpunbd::server::test
