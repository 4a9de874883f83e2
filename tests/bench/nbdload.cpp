// A fast, pipelined load generator for any NBD server.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/bench/connection.hpp"
#include "tests/bench/run_load.hpp"
#include "tests/bench/verify.hpp"

namespace {

constexpr const char* usage = R"(usage: nbdload --uri URI [options]

Keeps requests in flight to an NBD server, and prints the result as one line of JSON.

  --uri URI            nbd://host[:port]/name or nbd+unix:///name?socket=path; nbds for TLS
  --tls-certificates D folder with ca-cert.pem, and optionally client-cert.pem and client-key.pem
  --op OP              read, write, or rw: half of the connections read, half write (read)
  --size BYTES         size of a request (4k)
  --qd N               requests in flight per connection (32)
  --connections N      number of connections (1)
  --threads N          number of threads that share the connections (one per connection)
  --pattern P          random or sequential (random)
  --offset BYTES       start of the used part of the export (0)
  --span BYTES         size of the used part of the export (all)
  --prefill            write the whole span before the measurement
  --warmup SECONDS     time before the measured window (0.5)
  --seconds SECONDS    length of the measured window (2)
  --server-pid PID     also report the CPU time of this process per request
  --structured         negotiate structured replies
  --discard            TCP: the kernel drops large read payload without a copy (MSG_TRUNC)
  --sndbuf, --rcvbuf BYTES  socket buffer sizes (the kernel's defaults)
  --seed N             seed of offsets and contents (1)
  --timeout SECONDS    time without any reply after which the server counts as hung (30)
  --verify             check contents instead of speed: write, read back and compare many sizes
                       (--size: only that size; --seconds: repeat for this time)

The latency is the time from just before a request is sent to its reply. Sizes have binary units;
"mbps" is in 10^6 bytes per second. Exit status: 0: success; 1: an error reply, wrong contents or a
lost connection; 2: wrong usage, or no connection could be opened.
)";

}  // namespace

int main(int argc, char** argv) {
    using namespace gpunbd::bench;
    LoadOptions options;
    std::string uri;
    std::string certificates;
    bool verify = false;
    bool size_given = false;
    bool seconds_given = false;
    const auto names = with_common_flags({{"uri", required_argument, nullptr, 'u'},
                                          {"tls-certificates", required_argument, nullptr, 'C'},
                                          {"pattern", required_argument, nullptr, 'p'},
                                          {"offset", required_argument, nullptr, 'O'},
                                          {"span", required_argument, nullptr, 'S'},
                                          {"prefill", no_argument, nullptr, 'f'},
                                          {"server-pid", required_argument, nullptr, 'P'},
                                          {"structured", no_argument, nullptr, 'x'},
                                          {"seed", required_argument, nullptr, 'e'},
                                          {"verify", no_argument, nullptr, 'v'}});
    try {
        int letter = 0;
        while ((letter = getopt_long(argc, argv, "", names.data(), nullptr)) != -1) {
            const std::string_view value = optarg == nullptr ? "" : optarg;
            size_given = size_given || letter == 's';
            seconds_given = seconds_given || letter == 'd';
            if (read_common_flag(options, letter, value)) continue;
            switch (letter) {
                case 'u':
                    uri = value;
                    break;
                case 'C':
                    certificates = value;
                    break;
                case 'p':
                    if (value != "random" && value != "sequential")
                        fail("--pattern is random or sequential");
                    options.random = value == "random";
                    break;
                case 'O':
                    options.offset = parse_bytes(value);
                    break;
                case 'S':
                    options.span = parse_bytes(value);
                    break;
                case 'f':
                    options.prefill = true;
                    break;
                case 'P':
                    options.window.server = static_cast<pid_t>(parse_count(value));
                    break;
                case 'x':
                    options.driver.structured = true;
                    break;
                case 'e':
                    options.seed = parse_count(value);
                    break;
                case 'v':
                    verify = true;
                    break;
                case 'h':
                    std::fputs(usage, stdout);
                    return 0;
                default:
                    std::fputs("Try nbdload --help.\n", stderr);
                    return 2;
            }
        }
        if (optind != argc || uri.empty()) {
            std::fputs(usage, stderr);
            return 2;
        }
        const auto target = gpunbd::client::parse_nbd_uri(uri);
        const bool is_unix = target.host.empty();
        if (options.driver.discard && is_unix) fail("--discard works over TCP only");
        if (target.tls && certificates.empty()) fail("TLS needs --tls-certificates");
        if (target.tls && (verify || options.driver.discard))
            fail("--verify and --discard work in the clear only");
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
            info = negotiate(socket, target.export_name, options.driver.structured,
                             tls ? &*tls : nullptr);
            set_timeout(socket.fd(), 0);
            sockets.push_back(std::move(socket));
        }
        const std::string transport = std::string(is_unix ? "unix" : "tcp") +
                                      (target.tls ? ", " + sockets.front().tls()->cipher() : "");
        if (verify)
            return run_verify(options, size_given ? options.size : 0,
                              seconds_given ? options.window.measured : 0, info, std::move(sockets),
                              "nbdload", transport);
        return run_load(options, info, std::move(sockets), "nbdload", transport);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "nbdload: %s\n", error.what());
        return 2;
    }
}
