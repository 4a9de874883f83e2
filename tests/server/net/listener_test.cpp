// Listeners: invalid addresses are reported, and only stop() ends a listener.
#include "server/net/listener.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "config/network.hpp"
#include "server/base/file_checks.hpp"
#include "server/net/address_error.hpp"
#include "server/net/unix_address.hpp"
#include "server/net/vsock_address.hpp"
#include "tests/checked.hpp"
#include "tests/contains.hpp"
#include "tests/server/client.hpp"
#include "tests/server/failing_allocation.hpp"
#include "tests/storage/open_files.hpp"
#include "tests/temporary_folder.hpp"

namespace gpunbd::server::test {
namespace {

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

int connect_to(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const sockaddr_un address = address_of(path);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    return -1;
}

int bound_to(const std::string& path, int backlog) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = address_of(path);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    if (backlog >= 0) REQUIRE(::listen(fd, backlog) == 0);
    return fd;
}

// The name of this program as error messages print it.
std::string own_name() {
    std::ifstream file("/proc/self/comm");
    std::string name;
    std::getline(file, name);
    return name + " (pid " + std::to_string(::getpid()) + ")";
}

config::UnixListener at(const std::string& path) {
    config::UnixListener options;
    options.path = path;
    return options;
}

TEST_CASE("listener: accepts clients, and removes its socket when it stops") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    auto options = at(directory.path("socket"));
    options.mode = 0640;
    const auto listener = Listener::unix_socket(io, options);
    struct stat status {};
    REQUIRE(::stat(options.path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0640);
    std::vector<OwnedFd> accepted;
    listener->start([&](OwnedFd fd, const Peer&) { accepted.push_back(std::move(fd)); });
    std::vector<int> clients;
    for (int i = 0; i != 5; ++i) clients.push_back(connect_to(options.path));
    while (accepted.size() != clients.size()) io.run_one();
    for (const OwnedFd& fd : accepted) CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    for (const int fd : clients) ::close(fd);
    listener->stop();
    listener->stop();
    CHECK(::stat(options.path.c_str(), &status) != 0);
    io.run();  // the coroutine ends
    CHECK(connect_to(options.path) < 0);
}

// "fe80::1%eth0", of an interface that is up; empty: there is none.
std::string link_local_address() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(all, &::freeifaddrs);
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET6) continue;
        config::ZonedAddress found{.address = {.v6 = true}, .zone = each->ifa_name};
        std::memcpy(found.address.bytes.data(),
                    &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr,
                    found.address.bytes.size());
        if (found.link_local()) return found.text();
    }
    return {};
}

TEST_CASE("listener: a link-local address is one of an interface") {
    boost::asio::io_context io;
    CHECK(contains(error_of([&] { return Listener::tcp(io, {.address = "fe80::1%gpunbd-none"}); }),
                   "[fe80::1%gpunbd-none]:10809: this machine has no interface 'gpunbd-none'"));
    const std::string address = link_local_address();
    if (address.empty()) {
        MESSAGE("SKIPPED: no interface has a link-local address");
        return;
    }
    const auto listener = Listener::tcp(io, {.address = address, .port = 0});
    const std::size_t zone = address.find('%') + 1;
    CHECK(contains(listener->uri("", false).value_or(""),
                   fmt::format("nbd://[{}25{}]:", address.substr(0, zone), address.substr(zone))));
}

TEST_CASE("listener: opening one fails at each allocation, and leaks no descriptor") {
    failing_allocation::in_turn({1}, [](const auto& fails) {
        const std::size_t files = storage::test::open_files();
        {
            boost::asio::io_context io;
            fails([&] { Listener::tcp(io, {.address = "127.0.0.1", .port = 0}); });
        }
        CHECK(storage::test::open_files() == files);
    });
}

TEST_CASE("listener: stopping does not remove the socket of another server at the same path") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    const auto listener = Listener::unix_socket(io, at(directory.path("socket")));
    // The file has been removed manually, and another server has been started.
    REQUIRE(::unlink(directory.path("socket").c_str()) == 0);
    const int other = bound_to(directory.path("socket"), 1);
    listener->stop();
    const int client = connect_to(directory.path("socket"));
    CHECK(client >= 0);
    ::close(client);
    ::close(other);
}

TEST_CASE("listener: only one of two servers replaces a stale socket") {
    const gpunbd::test::TemporaryFolder directory;
    const auto options = at(directory.path("socket"));
    ::close(bound_to(options.path, 1));
    {
        // The first server has bound the path but does not listen yet, so its socket looks stale.
        const auto first = bind_unix(options);
        CHECK(contains(error_of([&] { return bind_unix(options); }),
                       "another server is starting there"));
    }
    // A server that failed to start does not block the path.
    boost::asio::io_context io;
    const auto listener = Listener::unix_socket(io, options);
    const int client = connect_to(options.path);
    CHECK(client >= 0);
    ::close(client);
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
        CAPTURE(entry.path().string());
        ++files;
        CHECK(entry.path() == options.path);
    }
    CHECK(files == 1);
}

TEST_CASE("listener: a socket in use is not replaced") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    const int other = bound_to(directory.path("socket"), 0);
    CHECK(
        contains(error_of([&] { return Listener::unix_socket(io, at(directory.path("socket"))); }),
                 "another server is listening there, " + own_name() + ";"));
    // The backlog is full, and no connection is accepted from it.
    std::vector<int> waiting;
    for (int fd = 0; fd >= 0 && waiting.size() < 100;) {
        fd = connect_to(directory.path("socket"));
        if (fd >= 0) waiting.push_back(fd);
    }
    CHECK(waiting.size() < 100);
    CHECK(
        contains(error_of([&] { return Listener::unix_socket(io, at(directory.path("socket"))); }),
                 "another server is listening"));
    struct stat status {};
    CHECK(::stat(directory.path("socket").c_str(), &status) == 0);
    for (const int fd : waiting) ::close(fd);
    ::close(other);
}

TEST_CASE("listener: a file of another type is not replaced") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    std::ofstream(directory.path("socket")) << "precious";
    CHECK(
        contains(error_of([&] { return Listener::unix_socket(io, at(directory.path("socket"))); }),
                 "is a file that is not a socket"));
    std::string text;
    CHECK(std::getline(std::ifstream(directory.path("socket")), text));
    CHECK(text == "precious");
}

TEST_CASE("listener: invalid paths are refused") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    CHECK(contains(error_of([&] { return Listener::unix_socket(io, at("")); }), "1 to 107 bytes"));
    const std::string longest =
        directory.path() + "/" + std::string(106 - directory.path().size(), 's');
    CHECK(longest.size() == 107);
    CHECK(error_of([&] { return Listener::unix_socket(io, at(longest)); }) == "");
    CHECK(contains(error_of([&] { return Listener::unix_socket(io, at(longest + "s")); }),
                   "1 to 107 bytes"));
    CHECK(contains(error_of([&] { return Listener::unix_socket(io, at("/no/such/directory/s")); }),
                   "the folder /no/such/directory does not exist; create it"));
    CHECK(contains(error_of([&] { return Listener::unix_socket(io, at("/dev/null/s")); }),
                   "/dev/null is not a folder"));
    CHECK(
        contains(create_error("/mnt/s", ENOLCK), "/mnt is on a file system without locks (flock)"));
}

TEST_CASE("listener: an unknown owner is refused and leaves no file behind") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    struct stat status {};
    for (const char* owner : {"no-such-user-here", ":no-such-group-here", "root:no-such-group"}) {
        CAPTURE(owner);
        auto options = at(directory.path("socket"));
        options.owner = owner;
        CHECK(
            contains(error_of([&] { return Listener::unix_socket(io, options); }), "there is no"));
        CHECK(::lstat(options.path.c_str(), &status) != 0);
    }
}

std::uint16_t port_of(int fd) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    return ntohs(address.sin_port);
}

TEST_CASE("listener: TCP addresses") {
    boost::asio::io_context io;
    const int other = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(other, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(other, 1) == 0);
    const std::uint16_t port = port_of(other);
    const std::string in_use =
        error_of([&] { return Listener::tcp(io, {.address = "127.0.0.1", .port = port}); });
    CHECK(contains(in_use, "127.0.0.1:" + std::to_string(port)));
    CHECK(contains(in_use, "the port is taken by " + own_name() + "; end that program, or choose"));
    // A listener on the wildcard address also blocks the port.
    ::close(other);
    const int everywhere = ::socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = 0;
    REQUIRE(::bind(everywhere, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(everywhere, 1) == 0);
    const std::uint16_t taken = port_of(everywhere);
    CHECK(contains(
        error_of([&] { return Listener::tcp(io, {.address = "127.0.0.1", .port = taken}); }),
        "the port is taken by " + own_name()));
    ::close(everywhere);
    try {
        Listener::tcp(io, {.address = "192.0.2.1", .port = 1});  // reserved for documentation
        FAIL("an address of another machine was taken");
    } catch (const AddressError& error) {
        CHECK(error.kind == AddressError::Kind::absent);
        CHECK(contains(error.what(), "this machine has no address 192.0.2.1"));
    }
    for (const char* wrong : {"localhost", "", "127.0.0", "::1::", "1.2.3.4.5"}) {
        CHECK(contains(error_of([&] { return Listener::tcp(io, {.address = wrong, .port = 1}); }),
                       "not a numeric"));
    }
    CHECK(error_of([&] { return Listener::tcp(io, {.address = "127.0.0.1", .port = 0}); }) == "");
}

TEST_CASE("listener: vsock addresses") {
    boost::asio::io_context io;
    const int probe = ::socket(AF_VSOCK, SOCK_STREAM, 0);
    if (probe < 0) {
        CHECK(contains(error_of([&] { Listener::vsock(io, {}); }), "this kernel has no vsock"));
        MESSAGE("SKIPPED: this kernel has no vsock");
        return;
    }
    ::close(probe);
    // Ports above 2^31, which the kernel does not assign.
    const config::VsockListener any{.port = 0x90000000U + static_cast<std::uint32_t>(::getpid())};
    {
        const auto listener = Listener::vsock(io, any);
        const auto uri = listener->uri("x", false);
        REQUIRE(uri.has_value());
        CHECK(contains(*uri, "nbd+vsock://"));
        CHECK(contains(*uri, ":" + std::to_string(any.port) + "/x"));
        const std::string taken = error_of([&] { Listener::vsock(io, any); });
        CHECK(taken == "vsock:any:" + std::to_string(any.port) +
                           ": the port is taken; end the program that listens there, or choose "
                           "another port");
    }
    CHECK(error_of([&] { Listener::vsock(io, any); }) == "");  // the port is free again
    try {
        Listener::vsock(io, {.cid = 4'000'000'000, .port = any.port});
        FAIL("the address of another machine was taken");
    } catch (const AddressError& error) {
        CHECK(error.kind == AddressError::Kind::absent);
        CHECK(contains(error.what(), "this machine is not CID 4000000000"));
    }
}

TEST_CASE("listener: each errno of a vsock listener has its remedy") {
    const config::VsockListener options{.cid = 7, .port = 80};
    const struct {
        int error;
        AddressError::Kind kind;
        const char* remedy;
    } rows[] = {
        {EADDRINUSE, AddressError::Kind::taken, "choose another port"},
        {EADDRNOTAVAIL, AddressError::Kind::absent, "any matches every CID"},
        {EAFNOSUPPORT, AddressError::Kind::absent, "modprobe vsock"},
        {EACCES, AddressError::Kind::other, "CAP_NET_BIND_SERVICE"},
        {ENOMEM, AddressError::Kind::other, "cannot listen there"},
    };
    for (const auto& row : rows) {
        const AddressError error = vsock_error(options, row.error);
        CHECK(error.kind == row.kind);
        CHECK(contains(error.what(), "vsock:7:80: "));
        CHECK(contains(error.what(), row.remedy));
    }
}

TEST_CASE("listener: inherited sockets must be in the listening state") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    const int quiet = bound_to(directory.path("socket"), -1);
    CHECK(contains(error_of([&] { return Listener::inherited(io, OwnedFd::copy_of(quiet)); }),
                   "does not listen"));
    CHECK(
        contains(error_of([&] { return Listener::inherited(io, OwnedFd()); }), "does not listen"));
    REQUIRE(::listen(quiet, 5) == 0);
    const auto listener = Listener::inherited(io, OwnedFd(quiet));
    bool accepted = false;
    listener->start([&](const OwnedFd&, const Peer&) { accepted = true; });
    const int client = connect_to(directory.path("socket"));
    while (!accepted) io.run_one();
    ::close(client);
    // The supervisor created the socket file, and the supervisor removes it.
    listener->stop();
    struct stat status {};
    CHECK(::stat(directory.path("socket").c_str(), &status) == 0);
}

TEST_CASE("listener: survives a lack of memory for a connection") {
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    const auto listener = Listener::unix_socket(io, at(directory.path("socket")));
    int accepted = 0;
    listener->start([&](const OwnedFd&, const Peer&) {
        if (++accepted == 1) throw std::bad_alloc();
    });
    const int first = connect_to(directory.path("socket"));
    const int second = connect_to(directory.path("socket"));
    while (accepted != 2 && io.run_one() != 0) {
    }
    CHECK(accepted == 2);
    ::close(first);
    ::close(second);
}

TEST_CASE("listener: survives a lack of descriptors") {
#ifdef __SANITIZE_ADDRESS__
    MESSAGE(
        "skipped: UBSan opens a pipe to look at a new vptr, and takes that it cannot for a fault");
    return;
#endif
    const auto level = spdlog::get_level();
    spdlog::set_level(spdlog::level::off);
    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder directory;
    const auto listener = Listener::unix_socket(io, at(directory.path("socket")));
    int accepted = 0;
    listener->start([&](const OwnedFd&, const Peer&) { ++accepted; });
    const int client = connect_to(directory.path("socket"));
    std::vector<int> all;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = 200;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (int fd = 0; fd >= 0;) {
        fd = ::dup(client);
        if (fd >= 0) all.push_back(fd);
    }
    for (int i = 0; i != 3; ++i) io.run_one();
    CHECK(accepted == 0);
    for (const int fd : all) ::close(fd);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    while (accepted == 0) io.run_one();
    ::close(client);
    spdlog::set_level(level);
}

}  // namespace
}  // namespace gpunbd::server::test
