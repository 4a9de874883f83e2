#include "server/tools/tls_setup/subcommand.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "config/command_line/store.hpp"
#include "config/rules.hpp"
#include "server/base/exit_code.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view host_details = R"(A DNS name may have a leading
.Ql *. .
Clients compare the address of their connection with all names.)";
constexpr std::string_view client_details =
    "The name becomes its common name: up to 64 letters, digits, dots, dashes, underscores and @.";

}  // namespace

TlsSetupCommand::TlsSetupCommand()
    : Command(
          {.name = "tls-setup",
           .called = "tls certificates certs setup-tls mkcert keygen ca",
           .takes = folder_argument,
           .example = "/etc/gpunbd/tls --host storage.example.org",
           .brief = "Create certificates or shared keys for TLS",
           .usage = R"(Usage: gpunbd tls-setup DIR --host NAME... [--client NAME...] [--days N]
       gpunbd tls-setup DIR --client NAME...
       gpunbd tls-setup DIR --psk USER...
       gpunbd tls-setup DIR --renew [--client NAME...] [--days N]
)",
           .about =
               R"(Creates the TLS files of servers and clients in DIR: an authority, the server's
certificate, and for each client or user a folder to copy to its machine. Prints
how to use them. Later runs add clients and users. It creates all files or none,
and replaces none, except that it adds lines to keys.psk, and that --renew
replaces certificates. Shared keys do not expire.
)",
           .groups = {{"Flags",
                       {{.name = "--host",
                         .takes = "NAME",
                         .example = "storage.example.org",
                         .brief = "A name under which clients connect to the server",
                         .more = ": a DNS name or a numeric address, repeatable.",
                         .called = "--server --hostname --san --dns --ip --name",
                         .repeats = true,
                         .details = host_details,
                         .store = append(settings.hosts, "--host", rules::host_name)},
                        {.name = "--client",
                         .takes = "NAME",
                         .example = "alice",
                         .brief = "A client that gets a certificate",
                         .more = ", repeatable.",
                         .called = "--user --clients --peer",
                         .repeats = true,
                         .details = client_details,
                         .store = append(settings.clients, "--client", rules::client_name)},
                        {.name = "--psk",
                         .takes = "USER",
                         .example = "alice",
                         .brief = "A user with a shared key",
                         .more = ", repeatable.",
                         .called = "--key --shared-key --keys",
                         .repeats = true,
                         .store = append(settings.users, "--psk", rules::client_name)},
                        {.name = "--renew",
                         .brief = "Replace the server's certificate by a later one",
                         .more = " for the same key and names, signed by the same authority; and "
                                 "those of each --client.",
                         .called = "--rotate --update --extend --force",
                         .excludes = {"--host", "--psk"},
                         .why_not = "a certificate keeps its names, and shared keys do not expire",
                         .store = into(settings.renew)},
                        {.name = "--days",
                         .takes = "N",
                         .example = "730",
                         .brief = "Validity of the certificates",
                         .more = ", 1 to 3650, and at most the validity of the authority, which is "
                                 "ten years; default 730.",
                         .called = "--valid --validity --expires",
                         .store = into(settings.days, integer_in(1, 3650))}}}},
           .examples =
               R"(  gpunbd tls-setup /etc/gpunbd/tls --host storage.example.org --client alice
  gpunbd tls-setup /etc/gpunbd/tls --client bob
  gpunbd tls-setup /etc/gpunbd/tls --psk alice
  gpunbd tls-setup /etc/gpunbd/tls --renew --client alice
)",
           .ending = R"(Exit codes: 0 done; 1 failed, and nothing was created; 2 wrong usage.
See also: gpunbd(8)
)",
           .manual = R"(Create an authority, certificates and keys for TLS in
.Ar dir ,
under the names that
.Nm ,
nbdkit, libnbd and QEMU use:
.Pa ca-cert.pem
and
.Pa ca-key.pem ,
an authority that is valid for ten years, unless there is one already;
.Pa server-cert.pem
and
.Pa server-key.pem ;
.Pa keys.psk ,
with a line for each user; and for each client and user the folder
.Pa clients/ Ns Ar name .
Copy that folder to the client; it contains no secrets of others.
The command prints the server's configuration, and how clients connect.
.Pp
Keys are on the curve P-256, in files of mode 0600; folders have mode 0700.
The server must be able to read its key.
It does not need
.Pa ca-key.pem ,
which can sign certificates for any name: store it elsewhere, and restore it to add a client.
Existing files are not replaced, except that
.Pa keys.psk
gets further lines, and that
.Fl -renew
replaces the server's certificate, and those of the named clients, by certificates for the same keys and names.
Then reload the server, and copy
.Pa client-cert.pem
to the clients.
If a step fails, no file is created.
)",
           .store = into(settings.folder)}) {}

void TlsSetupCommand::check() {
    if (settings.renew || !settings.hosts.empty() || !settings.clients.empty() ||
        !settings.users.empty())
        return;
    throw UsageError(
        "nothing to create; pass the name that clients use for the server, for example --host "
        "storage.example.org, or a user of a shared key: --psk alice");
}

int TlsSetupCommand::run(const Commands&) {
    std::string instructions;
    try {
        instructions = server::set_up_tls(settings);
    } catch (const std::runtime_error& error) {
        fmt::print(stderr, "gpunbd tls-setup: {}\n", error.what());
        return server::exit_failure;
    }
    fmt::print("{}", instructions);
    return 0;
}

}  // namespace gpunbd::tools
