// Listeners: invalid addresses are reported, and only stop() ends a listener.
#include "server/net/listener.hpp"

#include <arpa/inet.h>
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

#include <filesystem>
#include <fstream>

#include "config/network.hpp"
#include "server/base/file_checks.hpp"
#include "server/net/address_error.hpp"
#include "server/net/unix_address.hpp"
#include "server/net/vsock_address.hpp"
#include "tests/server/client.hpp"
#include "tests/server/failing_allocation.hpp"
#include "tests/storage/open_files.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

// Empty if it is refused.
OwnedFd connect_to(const std::string& path) {
    OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    const sockaddr_un address = address_of(path);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    return ::connect(fd.get(), generic, sizeof address) == 0 ? std::move(fd) : OwnedFd();
}

OwnedFd bound_to(const std::string& path, int backlog) {
    OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = address_of(path);
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    if (backlog >= 0) REQUIRE(::listen(fd.get(), backlog) == 0);
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

// A folder with a path for a Unix socket, and the loop of its listener.
struct Place {
    std::unique_ptr<Listener> listen() { return Listener::unix_socket(io, options); }
    // The reason why no listener can be opened there. Empty: it can be.
    std::string refusal() {
        return error_of([this] { return listen(); });
    }
    OwnedFd connect() const { return connect_to(options.path); }
    bool accepts() const { return static_cast<bool>(connect()); }
    bool has_socket() const { return ::access(options.path.c_str(), F_OK) == 0; }

    boost::asio::io_context io;
    const gpunbd::test::TemporaryFolder folder;
    config::UnixListener options = at(folder.path("socket"));
};

TEST_CASE("listener: accepts clients, and removes its socket when it stops") {
    Place place;
    place.options.mode = 0640;
    const auto listener = place.listen();
    struct stat status {};
    REQUIRE(::stat(place.options.path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0640);
    std::vector<OwnedFd> accepted;
    listener->start([&](OwnedFd fd, const Peer&) { accepted.push_back(std::move(fd)); });
    std::vector<OwnedFd> clients;
    for (int i = 0; i != 5; ++i) clients.push_back(place.connect());
    while (accepted.size() != clients.size()) place.io.run_one();
    for (const OwnedFd& fd : accepted) CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    listener->stop();
    listener->stop();
    CHECK_FALSE(place.has_socket());
    place.io.run();  // the coroutine ends
    CHECK_FALSE(place.accepts());
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
    Place place;
    const auto listener = place.listen();
    // The file has been removed manually, and another server has been started.
    REQUIRE(::unlink(place.options.path.c_str()) == 0);
    const OwnedFd other = bound_to(place.options.path, 1);
    listener->stop();
    CHECK(place.accepts());
}

TEST_CASE("listener: only one of two servers replaces a stale socket") {
    Place place;
    bound_to(place.options.path, 1);  // closed at once, so its socket is stale
    {
        // The first server has bound the path but does not listen yet, so its socket looks stale.
        const auto first = bind_unix(place.options);
        CHECK(contains(error_of([&] { return bind_unix(place.options); }),
                       "another server is starting there"));
    }
    // A server that failed to start does not block the path.
    const auto listener = place.listen();
    CHECK(place.accepts());
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(place.folder.path())) {
        CAPTURE(entry.path().string());
        ++files;
        CHECK(entry.path() == place.options.path);
    }
    CHECK(files == 1);
}

TEST_CASE("listener: a socket in use is not replaced") {
    Place place;
    const OwnedFd other = bound_to(place.options.path, 0);
    CHECK(contains(place.refusal(), "another server is listening there, " + own_name() + ";"));
    // The backlog is full, and no connection is accepted from it.
    std::vector<OwnedFd> waiting;
    do {
        waiting.push_back(place.connect());
    } while (waiting.back() && waiting.size() < 100);
    CHECK(waiting.size() < 100);
    CHECK(contains(place.refusal(), "another server is listening"));
    CHECK(place.has_socket());
}

TEST_CASE("listener: a file of another type is not replaced") {
    Place place;
    place.folder.write("socket", "precious");
    CHECK(contains(place.refusal(), "is a file that is not a socket"));
    CHECK(place.folder.read("socket") == "precious");
}

TEST_CASE("listener: invalid paths are refused") {
    Place place;
    const std::string longest =
        place.folder.path(std::string(106 - place.folder.path().size(), 's'));
    CHECK(longest.size() == 107);
    place.options.path = longest;
    CHECK(place.refusal() == "");
    const std::pair<std::string, const char*> rows[] = {
        {"", "1 to 107 bytes"},
        {longest + "s", "1 to 107 bytes"},
        {"/no/such/directory/s", "the folder /no/such/directory does not exist; create it"},
        {"/dev/null/s", "/dev/null is not a folder"},
    };
    for (const auto& [path, refusal] : rows) {
        CAPTURE(path);
        place.options.path = path;
        CHECK(contains(place.refusal(), refusal));
    }
    CHECK(
        contains(create_error("/mnt/s", ENOLCK), "/mnt is on a file system without locks (flock)"));
}

TEST_CASE("listener: an unknown owner is refused and leaves no file behind") {
    Place place;
    for (const char* owner : {"no-such-user-here", ":no-such-group-here", "root:no-such-group"}) {
        CAPTURE(owner);
        place.options.owner = owner;
        CHECK(contains(place.refusal(), "there is no"));
        CHECK_FALSE(place.has_socket());
    }
}

// A socket that listens at a port of this address, and the port.
std::pair<OwnedFd, std::uint16_t> listening_at(in_addr_t ip) {
    OwnedFd fd(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(ip);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(fd.get(), generic, length) == 0);
    REQUIRE(::listen(fd.get(), 1) == 0);
    REQUIRE(::getsockname(fd.get(), generic, &length) == 0);
    return {std::move(fd), ntohs(address.sin_port)};
}

TEST_CASE("listener: TCP addresses") {
    boost::asio::io_context io;
    // A listener on the wildcard address also blocks the port.
    for (const in_addr_t ip : {INADDR_LOOPBACK, INADDR_ANY}) {
        const auto [other, port] = listening_at(ip);
        const config::TcpListener taken{.address = "127.0.0.1", .port = port};
        const std::string in_use = error_of([&] { return Listener::tcp(io, taken); });
        CHECK(contains(in_use, "127.0.0.1:" + std::to_string(port)));
        CHECK(contains(in_use,
                       "the port is taken by " + own_name() + "; end that program, or choose"));
    }
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
    if (!OwnedFd(::socket(AF_VSOCK, SOCK_STREAM, 0))) {
        CHECK(contains(error_of([&] { Listener::vsock(io, {}); }), "this kernel has no vsock"));
        MESSAGE("SKIPPED: this kernel has no vsock");
        return;
    }
    // Ports above 2^31, which the kernel does not assign.
    const config::VsockListener any{.port = 0x90000000U + static_cast<std::uint32_t>(::getpid())};
    {
        const auto listener = Listener::vsock(io, any);
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
    Place place;
    OwnedFd quiet = bound_to(place.options.path, -1);
    const auto refusal = [&](OwnedFd fd) {
        return error_of([&] { return Listener::inherited(place.io, std::move(fd)); });
    };
    CHECK(contains(refusal(OwnedFd::copy_of(quiet)), "does not listen"));
    CHECK(contains(refusal(OwnedFd()), "does not listen"));
    REQUIRE(::listen(quiet.get(), 5) == 0);
    const auto listener = Listener::inherited(place.io, std::move(quiet));
    bool accepted = false;
    listener->start([&](const OwnedFd&, const Peer&) { accepted = true; });
    const OwnedFd client = place.connect();
    while (!accepted) place.io.run_one();
    // The supervisor created the socket file, and the supervisor removes it.
    listener->stop();
    CHECK(place.has_socket());
}

TEST_CASE("listener: survives a lack of memory for a connection") {
    Place place;
    const auto listener = place.listen();
    int accepted = 0;
    listener->start([&](const OwnedFd&, const Peer&) {
        if (++accepted == 1) throw std::bad_alloc();
    });
    const OwnedFd first = place.connect();
    const OwnedFd second = place.connect();
    while (accepted != 2 && place.io.run_one() != 0) {
    }
    CHECK(accepted == 2);
}

TEST_CASE("listener: survives a lack of descriptors") {
#ifdef __SANITIZE_ADDRESS__
    MESSAGE(
        "skipped: UBSan opens a pipe to look at a new vptr, and takes that it cannot for a fault");
    return;
#endif
    const auto level = spdlog::get_level();
    spdlog::set_level(spdlog::level::off);
    Place place;
    const auto listener = place.listen();
    int accepted = 0;
    listener->start([&](const OwnedFd&, const Peer&) { ++accepted; });
    const OwnedFd client = place.connect();
    std::vector<OwnedFd> all;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = 200;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    do {
        all.push_back(OwnedFd::copy_of(client));
    } while (all.back());
    for (int i = 0; i != 3; ++i) place.io.run_one();
    CHECK(accepted == 0);
    all.clear();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    while (accepted == 0) place.io.run_one();
    spdlog::set_level(level);
}

}  // namespace
}  // namespace gpunbd::server::test
