#include "server/tools/ping/subcommand.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <variant>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/base/exit_code.hpp"
#include "server/tools/client/nbd_target.hpp"
#include "server/tools/ping/ping.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view timeout_manual =
    R"(Time limit of the check, without the lookup of the host name, 1 to 3600.
Default: 5.)";

}  // namespace

PingCommand::PingCommand()
    : Command(
          {.name = "ping",
           .called = "probe health healthcheck alive connect",
           .takes = "URI",
           .example = "nbd://127.0.0.1:10809",
           .brief = "Ask a server whether it answers for an export",
           .usage = "Usage: gpunbd ping URI [--timeout SECONDS]\n",
           .about =
               R"(Shakes hands with any NBD server as a client does, up to what opening the export
would tell; for health checks. It opens nothing, and counts as no client of the
export. URI is nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH; in TLS
nbds, with ?tls-certificates=DIR (ca-cert.pem, client-cert.pem, client-key.pem),
tls-hostname=NAME and tls-verify-peer=false, as libnbd has them.
)",
           .groups = {{"Flags",
                       {{.name = "--timeout",
                         .takes = "SECONDS",
                         .example = "5",
                         .brief = "How long all of it may take",
                         .more = ", 1 to 3600; default 5.",
                         .called = "--time --wait --deadline",
                         .manual = timeout_manual,
                         .store = into(timeout, integer_in(1, 3600))}}}},
           .examples = R"(  gpunbd ping nbd://127.0.0.1:10809
  gpunbd ping 'nbd+unix:///scratch?socket=/run/gpunbd/gpunbd.sock'
  gpunbd ping 'nbds://node-7/?tls-certificates=/etc/gpunbd/alice' --timeout 2
)",
           .ending = R"(Exit codes: 0 it answers; 1 it does not, or there is no such export; 2 wrong
usage.
See also: gpunbd(8)
)",
           .synopsis = R"(.Nm
.Cm ping
.Ar uri
.Op Fl -timeout Ar seconds
)",
           .manual = R"(.It Cm ping Ar uri Op Fl -timeout Ar seconds
Ask any NBD server whether it answers for an export, as a health check does: shake hands up to what
opening the export would tell, say its size, and leave.
It opens nothing, so that it counts as no client of the export.
.Ar uri
is
.Li nbd:// Ns Ar host : Ns Ar port Ns / Ns Ar name
or
.Li nbd+unix:/// Ns Ar name Ns ?socket= Ns Ar path ;
in TLS,
.Li nbds
and
.Li nbds+unix
with these parameters, as libnbd has them:
.Va tls-certificates ,
a folder with
.Pa ca-cert.pem ,
and with
.Pa client-cert.pem
and
.Pa client-key.pem
where the server asks for them, default the system's authorities;
.Va tls-hostname ,
the name that the certificate has to have, default the host, and over a Unix socket none;
.Va tls-verify-peer ,
which
.Cm false
leaves all that out; or, instead of these,
.Va tls-psk-file ,
a file of shared keys, with the user before the host, as in
.Li nbds:// Ns Ar user Ns Li @ Ns Ar host Ns / .
A folder's
.Pa ca-crl.pem
tells which certificates are revoked.
Vsocks are not for it.
)",
           .store = into(uri)}) {}

int PingCommand::run(const Commands&) {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
    const auto fail = [&](const std::string& reason, int exit_code) {
        fmt::print(stderr, "gpunbd ping: {}: {}\n", in_quotes(uri), reason);
        return exit_code;
    };
    client::NbdTarget target;
    try {
        target = client::parse_nbd_uri(uri);
    } catch (const std::runtime_error& error) {
        return fail(error.what(), server::exit_usage);
    }
    const auto answer = server::ping(target, std::chrono::seconds(timeout));
    if (const auto* failed = std::get_if<Failure>(&answer)) {
        return fail(with_remedy(*failed), server::exit_failure);
    }
    fmt::print("{}", std::get<std::string>(answer));
    return 0;
}

}  // namespace gpunbd::tools
