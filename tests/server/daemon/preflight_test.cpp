// The problems that a check finds, and that it changes nothing.
#include "server/daemon/preflight.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using config::MiB;

// The findings as lines: "key: text", "key: note: text".
std::string found(const config::Options& options) {
    std::string lines;
    for (const Finding& finding : try_out(options)) {
        lines += finding.key + (finding.failure ? ": " : ": note: ") + finding.text + "\n";
    }
    return lines;
}

void starts(const std::string& text, const std::string& start) {
    CAPTURE(text);
    CAPTURE(start);
    CHECK(text.starts_with(start));
}

config::Options with_export(std::uint64_t bytes) {
    config::Options options;
    config::DeviceOptions host;
    host.id = "host";
    host.reserve = 0;
    host.capacity = 100 * MiB;
    options.devices = {host};
    config::ExportOptions exported;
    exported.devices = {"host"};
    exported.size = config::Size{.bytes = bytes};
    options.exports = {exported};
    return options;
}

TEST_CASE("preflight: sizes, each alone and the sum of the full ones") {
    config::Options options = with_export(80 * MiB);
    CHECK(found(options).empty());
    options.exports.push_back(options.exports[0]);
    CHECK(found(options).empty());  // thin: nothing is allocated yet
    options.exports[0].provision = config::Provision::full;
    starts(found(options),
           "exports[1]: 80M do not fit on host: 20 MiB are available; set a size of at most 20M");
    options.exports[1].size = config::Size{.percent = 100};
    CHECK(found(options).empty());
    starts(found(with_export(101 * MiB)), "exports[0]: 101M do not fit on host");
}

TEST_CASE("preflight: missing devices") {
    config::Options options = with_export(MiB);
    options.exports[0].devices = {"cuda:987"};
    starts(found(options), "exports[0]: cuda:987: ");
}

// Ports that the kernel does not assign, since other programs may get those at any time.
constexpr std::uint16_t first_port = 21'000;
constexpr std::uint16_t fixed_port = 22'123;

TEST_CASE("preflight: TCP addresses") {
    config::Options options = with_export(MiB);
    const int other = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::uint16_t port = first_port;
    for (;; ++port) {
        REQUIRE(port != fixed_port);
        address.sin_port = htons(port);
        if (::bind(other, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) break;
    }
    REQUIRE(::listen(other, 1) == 0);
    options.tcp = {{.address = "127.0.0.2", .port = port}, {.address = "127.0.0.1", .port = port}};
    starts(found(options),
           "listeners.tcp[1]: 127.0.0.1:" + std::to_string(port) + ": the port is taken by ");
    ::close(other);
    CHECK(found(options).empty());
    CHECK(found(options).empty());  // the check has not kept them
    options.tcp = {{.address = "192.0.2.1", .port = port, .optional = true}};
    starts(found(options), "listeners.tcp[0]: note: 192.0.2.1:");
    options.tcp[0].optional = false;
    starts(found(options), "listeners.tcp[0]: 192.0.2.1:");
}

TEST_CASE("preflight: addresses of the configuration that exclude each other") {
    config::Options options = with_export(MiB);
    options.insecure = true;
    options.tcp = {{.address = "127.0.0.1", .port = fixed_port},
                   {.address = "::1", .port = fixed_port, .optional = true}};
    options.admin.tcp.address = "0:0::1";
    CHECK_FALSE(contains(found(options), "the port is taken by listeners"));
    options.admin.tcp.port = fixed_port;
    CHECK(contains(found(options),
                   "admin.tcp: [0:0::1]:22123: the port is taken by listeners.tcp[1]"));
    options.tcp[1] = {.address = "0.0.0.0", .port = fixed_port};
    CHECK(contains(found(options),
                   "listeners.tcp[1]: 0.0.0.0:22123: the port is taken by listeners.tcp[0]; choose "
                   "another port"));
    options = with_export(MiB);
    options.unix_sockets.resize(1);
    options.unix_sockets[0].path = "/tmp/gpunbd-preflight";
    options.keeping.socket = "/tmp/./gpunbd-preflight";
    starts(found(options),
           "keeping.socket: unix socket /tmp/./gpunbd-preflight: the path is taken by "
           "listeners.unix[0].path; choose another path");
    options.keeping.socket.reset();
    options.admin.socket = "/tmp//gpunbd-preflight";
    starts(found(options), "admin.socket: unix socket /tmp//gpunbd-preflight: the path is taken");
}

TEST_CASE("preflight: files and folders") {
    const gpunbd::test::TemporaryFolder made;
    const std::string& folder = made.path();
    config::Options options = with_export(MiB);
    config::ExportOptions& exported = options.exports[0];
    exported.restore = folder + "/image";
    starts(found(options), "exports[0].restore: " + folder + "/image: No such file or directory");
    exported.keep = true;
    starts(found(options), "exports[0].restore: note: ");
    made.write("image", "x");
    CHECK(found(options).empty());
    exported.save.path = folder + "/no/image";
    starts(found(options), "exports[0].save.path: note: the folder " + folder + "/no does not");
    exported.save.path = folder + "/image";
    options.state = folder + "/no/state";
    starts(found(options), "state: the folder " + folder + "/no does not exist");
    options.state = folder + "/state/";
    CHECK(found(options).empty());
    CHECK_FALSE(std::filesystem::exists(options.state));
    options.state = folder;
    made.write("a.yaml", "nam: a");
    starts(found(options), "state: " + folder + "/a.yaml:1:1: nam: unknown key");
}

TEST_CASE("preflight: Unix sockets") {
    const gpunbd::test::TemporaryFolder made;
    const std::string& folder = made.path();
    config::Options options = with_export(MiB);
    options.unix_sockets.resize(1);
    options.unix_sockets[0].path = folder + "/socket";
    CHECK(found(options).empty());
    CHECK(std::filesystem::is_empty(folder));
    options.unix_sockets[0].owner = "no-such-user";
    starts(found(options), "listeners.unix[0].owner: there is no user no-such-user");
    options.unix_sockets[0].owner = "root:root";
    const std::string findings = found(options);
    if (::geteuid() == 0) {
        CHECK(findings.empty());
    } else {
        starts(findings, "listeners.unix[0].owner: note: not tried: uid ");
    }
    options.unix_sockets[0].owner.clear();
    options.unix_sockets[0].path = made.write("file", "x");
    starts(found(options), "listeners.unix[0].path: unix socket " + folder +
                               "/file: the path is a file that is not a socket");
    options.unix_sockets[0].path = folder + "/no/socket";
    starts(found(options),
           "listeners.unix[0].path: the folder " + folder + "/no does not exist; create it");
    options.unix_sockets[0].path = folder + "/file/socket";
    starts(found(options), "listeners.unix[0].path: " + folder + "/file is not a folder");
}

TEST_CASE("preflight: vsock") {
    config::Options options = with_export(80 * MiB);
    options.vsock = {{.cid = 4'000'000'000, .port = 10809}};
    const std::string text = found(options);
    CHECK(text.starts_with("listeners.vsock[0]: vsock:4000000000:10809: this "));
    CHECK(text.find('\n') == text.size() - 1);
}

}  // namespace
}  // namespace gpunbd::server::test
