#include "server/tools/ping/subcommand.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "config/command_line/store.hpp"
#include "config/nbd_target.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "protocol/constants.hpp"
#include "server/base/process.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::tools {

namespace {

struct PingAnswer {
    std::string name;  // of the export
    client::ExportFacts facts;
};

// `gpunbd ping`: checks whether a server serves an export. It performs the handshake up to
// NBD_OPT_INFO, so that it does not count as a connection of the export. It shares no code with the
// negotiation of the server, so a fault in one of the two is visible in the other.
// Returns the reason if the export is not available.
Expected<PingAnswer, Failure> ping(const config::NbdTarget& target, std::chrono::seconds within) {
    const auto until = client::Clock::now() + within;
    auto found = client::find_endpoint(target, client::TlsBy::process);
    if (!found) return std::move(found).error();
    const auto& endpoint = *found;
    auto called = client::call(endpoint, until);
    if (!called) return std::move(called).error();
    auto& stream = *called;
    auto answer = client::query_export(stream, protocol::OptionType::info, endpoint.name);
    if (!answer) return std::move(answer).error();
    client::leave(stream);
    return PingAnswer{endpoint.name, *answer};
}

}  // namespace

using namespace config;

namespace {

constexpr std::string_view timeout_details = "Looking up the name of the host takes extra time.";
constexpr std::string_view json_details = R"(An object with
.Va name , size , read_only , minimum_block_size , maximum_request
and
.Va instance ,
the id of the contents or null.
Sizes are bytes.)";

}  // namespace

PingCommand::PingCommand()
    : Command(
          {.name = "ping",
           .called = "probe health healthcheck alive connect",
           .takes = "URI",
           .example = "nbd://127.0.0.1:10809",
           .brief = "Check whether a server serves an export",
           .usage = "Usage: gpunbd ping URI [--timeout SECONDS] [--json]\n",
           .about =
               R"(Performs the NBD handshake up to NBD_OPT_INFO and prints the size of the export;
for health checks. It does not open the export, so it does not count as a
client. URI is nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH. For TLS
write nbds, with libnbd's parameters: ?tls-certificates=DIR (ca-cert.pem,
client-cert.pem, client-key.pem), tls-hostname=NAME and tls-verify-peer=false.
)",
           .groups = {{"Flags",
                       {{.name = "--timeout",
                         .takes = "SECONDS",
                         .example = "5",
                         .brief = "Time limit for the whole check",
                         .more = ", 1 to 3600; default 5.",
                         .called = "--time --wait --deadline",
                         .details = timeout_details,
                         .store = into(timeout, integer_in(1, 3600))},
                        json_flag(json, json_details)}}},
           .examples = R"(  gpunbd ping nbd://127.0.0.1:10809
  gpunbd ping 'nbd+unix:///scratch?socket=/run/gpunbd/gpunbd.sock'
  gpunbd ping 'nbds://node-7/?tls-certificates=/etc/gpunbd/alice' --timeout 2
)",
           .ending = R"(Exit codes: 0 the export is available; 1 it is not, or the server does not
answer; 2 wrong usage.
See also: gpunbd(8)
)",
           .manual =
               R"(Check whether an NBD server serves an export, for health checks: perform the handshake up to
.Dv NBD_OPT_INFO ,
print the size of the export, and disconnect.
It does not open the export, so it does not count as a client.
.Ar uri
is
.Li nbd:// Ns Ar host : Ns Ar port Ns / Ns Ar name
or
.Li nbd+unix:/// Ns Ar name Ns ?socket= Ns Ar path .
For TLS, write
.Li nbds
or
.Li nbds+unix
with the parameters of libnbd:
.Va tls-certificates ,
a folder with
.Pa ca-cert.pem
and, if the server requires a client certificate,
.Pa client-cert.pem
and
.Pa client-key.pem ,
default the system's authorities;
.Va tls-hostname ,
the expected name in the certificate, default the host, and over a Unix socket none;
.Va tls-verify-peer ,
where
.Cm false
disables the verification; or, instead of these,
.Va tls-psk-file ,
a file of shared keys, with the user before the host, as in
.Li nbds:// Ns Ar user Ns Li @ Ns Ar host Ns / .
The file
.Pa ca-crl.pem
in the folder lists revoked certificates.
Vsock addresses are not supported.
)",
           .store = into(uri)}) {}

int PingCommand::run(const Commands&) {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
    const auto fail = [&](const std::string& reason, int exit_code) {
        return server::report_failure("ping", fmt::format("{}: {}", in_quotes(uri), reason), json,
                                      exit_code);
    };
    config::NbdTarget target;
    try {
        target = config::parse_nbd_uri(uri);
    } catch (const std::runtime_error& error) {
        return fail(error.what(), server::exit_usage);
    }
    const auto answer = ping(target, std::chrono::seconds(timeout));
    if (!answer) {
        return fail(with_remedy(answer.error()), server::exit_failure);
    }
    const auto& [export_name, facts] = *answer;
    const bool read_only = (facts.flags & protocol::transmission_flag::read_only) != 0;
    if (json) {
        const boost::json::object out{
            {"name", repaired_utf8(export_name)},
            {"size", facts.size},
            {"read_only", read_only},
            {"minimum_block_size", facts.block_size},
            {"maximum_request", facts.max_request},
            {"instance", facts.instance.empty() ? boost::json::value(nullptr)
                                                : boost::json::value(facts.instance)}};
        fmt::print("{}\n", boost::json::serialize(out));
    } else {
        fmt::print("export {} answers: {}{}\n", in_quotes(export_name), human_size(facts.size),
                   read_only ? ", read-only" : "");
    }
    return 0;
}

}  // namespace gpunbd::tools
