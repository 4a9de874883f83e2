// A fast, pipelined load generator for any NBD server.
#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/connection.hpp"
#include "tests/bench/run_load.hpp"
#include "tests/bench/verify.hpp"

namespace {

constexpr const char* about =
    "Keeps requests in flight to an NBD server, and prints the result as one line of JSON.";
constexpr const char* notes =
    R"(The latency is the time from just before a request is sent to its reply. Sizes have binary units;
"mbps" is in 10^6 bytes per second. Exit status: 0: success; 1: an error reply, wrong contents or a
lost connection; 2: wrong usage, or no connection could be opened.
)";

}  // namespace

int main(int argc, char** argv) {
    using namespace gpunbd::bench;
    LoadOptions options;
    std::string uri;
    std::string certificates;
    std::string pattern = "random";
    bool verify = false;
    try {
        CLI::App app(about, "nbdload");
        app.footer(notes);
        add_common_options(app, options);
        app.add_option("--uri", uri,
                       "nbd://host[:port]/name or nbd+unix:///name?socket=path; nbds for TLS")
            ->required();
        app.add_option(
            "--tls-certificates", certificates,
            "folder with ca-cert.pem, and optionally client-cert.pem and client-key.pem");
        app.add_option("--pattern", pattern, "random or sequential (random)")
            ->check(CLI::IsMember({"random", "sequential"}));
        add_size(app, "--offset", options.offset, "start of the used part of the export (0)");
        add_size(app, "--span", options.span, "size of the used part of the export (all)");
        app.add_flag("--prefill", options.prefill, "write the whole span before the measurement");
        app.add_option_function<pid_t>(
            "--server-pid", [&options](const pid_t& pid) { options.window.server = pid; },
            "also report the CPU time of this process per request");
        app.add_flag("--structured", options.structured, "negotiate structured replies");
        app.add_option("--seed", options.seed, "seed of offsets and contents (1)");
        app.add_flag("--verify", verify,
                     "check contents instead of speed: write, read back and compare many sizes "
                     "(--size: only that size; --seconds: repeat for this time)");
        if (const auto status = parse(app, argc, argv)) return *status;
        options.random = pattern == "random";
        const auto target = gpunbd::config::parse_nbd_uri(uri);
        const bool is_unix = target.host.empty();
        if (target.tls && certificates.empty()) fail("TLS needs --tls-certificates");
        if (target.tls && verify) fail("--verify works in the clear only");
        std::optional<TlsContext> tls;
        if (target.tls) tls.emplace(certificates);
        if (options.connections == 0) fail("--connections must be 1 or more");
        if (options.window.measured == 0 && !verify) fail("--seconds must be above 0");
        if (options.window.server && !process_cpu_ns(*options.window.server))
            fail("--server-pid: there is no such process");
        std::vector<Socket> sockets;
        ExportInfo info;
        for (std::uint64_t i = 0; i < options.connections; ++i) {
            auto socket = connect_to(target);
            set_timeout(socket.fd(), options.window.stall);
            info = negotiate(socket, target.export_name, options.structured, tls ? &*tls : nullptr);
            set_timeout(socket.fd(), 0);
            sockets.push_back(std::move(socket));
        }
        const std::string transport = std::string(is_unix ? "unix" : "tcp") +
                                      (target.tls ? ", " + sockets.front().tls()->cipher() : "");
        if (verify)
            return run_verify(options, app.count("--size") != 0 ? options.size : 0,
                              app.count("--seconds") != 0 ? options.window.measured : 0, info,
                              std::move(sockets), "nbdload", transport);
        return run_load(options, info, std::move(sockets), "nbdload", transport);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "nbdload: %s\n", error.what());
        return 2;
    }
}
