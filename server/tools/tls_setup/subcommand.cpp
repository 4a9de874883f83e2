#include "server/tools/tls_setup/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "server/base/process.hpp"
#include "server/net/nbd_uri.hpp"
#include "server/tools/tls_setup/certificates.hpp"
#include "server/tools/tls_setup/new_files.hpp"

namespace gpunbd::server {

namespace {

constexpr Days authority_valid{3652};  // ten years
constexpr mode_t for_all = 0644;
constexpr mode_t secret = 0600;

std::string of_client(const std::string& name, const char* file) {
    return fmt::format("clients/{}/{}", name, file);
}

// nullopt: the file does not exist.
std::optional<std::string> content_of(const std::string& path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
        throw std::runtime_error(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
    }
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (file.bad()) throw std::runtime_error(fmt::format("{}: cannot be read", path));
    return text;
}

class Setup {
 public:
    explicit Setup(const TlsSetupOptions& command)
        : command_(command),
          folder_(std::filesystem::absolute(command.folder).lexically_normal().string()) {
        while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
    }

    std::string run() {
        if (command_.renew) return renew();
        NewFiles files(folder_);
        if (!command_.hosts.empty() || !command_.clients.empty()) certificates(files);
        if (!command_.users.empty()) shared_keys(files);
        files.publish();
        return instructions_ + configuration() + for_clients();
    }

 private:
    void instruct(const std::string& path, const std::string& what) {
        instructions_ += fmt::format("{}/{}\n    {}\n", folder_, path, what);
    }

    Identity authority(NewFiles& files) {
        const auto certificate = content_of(folder_ + "/ca-cert.pem");
        const auto key = content_of(folder_ + "/ca-key.pem");
        if (certificate && key) {
            try {
                return read_authority(*certificate, *key);
            } catch (const std::runtime_error& error) {
                throw std::runtime_error(fmt::format(
                    "{}/ca-cert.pem: {}; move it and ca-key.pem away to create a new authority",
                    folder_, error.what()));
            }
        }
        if (certificate || key) {
            throw std::runtime_error(
                fmt::format("{}/{} exists without its {}, which is needed to sign; restore that "
                            "file, or choose another folder",
                            folder_, certificate ? "ca-cert.pem" : "ca-key.pem",
                            certificate ? "ca-key.pem" : "ca-cert.pem"));
        }
        if (command_.hosts.empty()) {
            throw std::runtime_error(
                fmt::format("{} has no ca-cert.pem that could sign for clients; name the server as "
                            "well: --host NAME",
                            folder_));
        }
        Identity made = make_authority(
            "gpunbd authority of " + command_.hosts.front().substr(0, 40), authority_valid);
        files.add("ca-cert.pem", pem(*made.certificate), for_all);
        files.add("ca-key.pem", pem(*made.key), secret);
        instruct("ca-cert.pem, ca-key.pem",
                 fmt::format("a new authority, valid until {}. Servers do not need ca-key.pem: "
                             "store it elsewhere",
                             last_day(*made.certificate)));
        return made;
    }

    std::string renew() {
        if (!content_of(folder_ + "/ca-key.pem")) {
            throw std::runtime_error(fmt::format(
                "{}/ca-key.pem does not exist, and is needed to sign; restore it there", folder_));
        }
        NewFiles files(folder_);
        const Identity signer = authority(files);
        // A folder may have clients only.
        if (command_.clients.empty() || content_of(folder_ + "/server-cert.pem")) {
            renew_one(files, signer, "server-cert.pem", "the server");
            instructions_ +=
                "    Reload the server, by systemctl reload gpunbd or SIGHUP; restart one without "
                "--config.\n";
        }
        for (const std::string& name : command_.clients) {
            renew_one(files, signer, of_client(name, "client-cert.pem"), "the client " + name);
            instructions_ += "    Copy this file to the client.\n";
        }
        files.publish();
        return instructions_;
    }

    void renew_one(NewFiles& files, const Identity& signer, const std::string& path,
                   const std::string& owner) {
        const auto text = content_of(fmt::format("{}/{}", folder_, path));
        if (!text) {
            throw std::runtime_error(
                fmt::format("{}/{} does not exist, so it cannot be renewed; leave --renew out to "
                            "create it",
                            folder_, path));
        }
        try {
            const Certificate made = renewed(signer, *text, Days(command_.days));
            files.replace(path, pem(*made), for_all);
            instruct(path, fmt::format("{}, valid until {}. Its key is the same.", owner,
                                       last_day(*made)));
        } catch (const std::runtime_error& error) {
            throw std::runtime_error(fmt::format("{}/{}: {}", folder_, path, error.what()));
        }
    }

    void certificates(NewFiles& files) {
        const Days valid(command_.days);
        const Identity signer = authority(files);
        if (!command_.hosts.empty()) {
            const Identity made = make_server(signer, command_.hosts, valid);
            files.add("server-cert.pem", pem(*made.certificate), for_all);
            files.add("server-key.pem", pem(*made.key), secret);
            instruct("server-cert.pem, server-key.pem",
                     fmt::format("the server {}, valid until {}", fmt::join(command_.hosts, ", "),
                                 last_day(*made.certificate)));
        }
        for (const std::string& name : command_.clients) {
            const Identity made = make_client(signer, name, valid);
            files.add(of_client(name, "client-cert.pem"), pem(*made.certificate), for_all);
            files.add(of_client(name, "client-key.pem"), pem(*made.key), secret);
            files.add(of_client(name, "ca-cert.pem"), pem(*signer.certificate), for_all);
            instruct(of_client(name, ""),
                     fmt::format("the client {}, valid until {}: copy this folder to the client",
                                 name, last_day(*made.certificate)));
        }
    }

    void shared_keys(NewFiles& files) {
        std::string keys = content_of(folder_ + "/keys.psk").value_or("");
        if (!keys.empty() && keys.back() != '\n') keys += '\n';
        for (const std::string& user : command_.users) {
            if (keys.starts_with(user + ":") || keys.find("\n" + user + ":") != std::string::npos) {
                throw std::runtime_error(fmt::format(
                    "{}/keys.psk already has a key for {}; remove its line to create a new one",
                    folder_, user));
            }
            const std::string line = fmt::format("{}:{}\n", user, make_shared_key());
            keys += line;
            files.add(of_client(user, "keys.psk"), line, secret);
            instruct(of_client(user, "keys.psk"),
                     fmt::format("the key of the user {}: copy this file to the client", user));
        }
        files.replace("keys.psk", keys, secret);
        instruct("keys.psk", "the keys of all users; only the server needs it");
    }

    std::string configuration() const {
        std::string text = "\nIn the configuration of the server:\n\ntls:\n  mode: required\n";
        if (!command_.hosts.empty() || !command_.clients.empty()) {
            text += fmt::format("  certificates: {}\n", config::yaml_quoted(folder_));
        }
        if (!command_.users.empty()) {
            text += fmt::format("  psk: {}\n", config::yaml_quoted(folder_ + "/keys.psk"));
        }
        return text;
    }

    // For clients on this machine; on others the folder differs.
    std::string for_clients() const {
        std::string host = command_.hosts.empty() ? "HOST" : command_.hosts.front();
        if (host.starts_with("*.")) host.replace(0, 1, "HOST");
        const bool v6 = host.find(':') != std::string::npos;
        const std::string in_uri = v6 ? fmt::format("[{}]", host) : host;
        std::string text;
        for (const std::string& name : command_.clients) {
            const std::string folder = folder_ + "/clients/" + name;
            text += fmt::format("\nAs the client {}:\n\n", name);
            text += line("nbdinfo", tls_uri(in_uri, "", "tls-certificates", folder));
            text += qemu(host, fmt::format("tls-creds-x509,id=tls,endpoint=client,dir={}",
                                           doubled_commas(folder)));
            text += fmt::format("nbd-client {} /dev/nbd0 -A {} -F {} -K {} -H {}\n", host,
                                shell_word(folder + "/ca-cert.pem"),
                                shell_word(folder + "/client-cert.pem"),
                                shell_word(folder + "/client-key.pem"), host);
        }
        for (const std::string& user : command_.users) {
            const std::string folder = folder_ + "/clients/" + user;
            text += fmt::format("\nAs the user {}:\n\n", user);
            text +=
                line("nbdinfo", tls_uri(in_uri, user + "@", "tls-psk-file", folder + "/keys.psk"));
            text +=
                qemu(host, fmt::format("tls-creds-psk,id=tls,endpoint=client,username={},dir={}",
                                       user, doubled_commas(folder)));
        }
        return text;
    }

    static std::string tls_uri(const std::string& host, const std::string& user, const char* key,
                               const std::string& path) {
        return fmt::format("nbds://{}{}/?{}={}", user, host, key, percent_encoded(path));
    }
    static std::string line(const char* program, const std::string& uri) {
        return fmt::format("{} {}\n", program, shell_word(uri));
    }
    static std::string qemu(const std::string& host, const std::string& credentials) {
        return fmt::format(
            "qemu-img info --object {} \\\n"
            "    --image-opts driver=nbd,host={},port=10809,tls-creds=tls\n",
            shell_word(credentials), shell_word(host));
    }
    // In QEMU options, a comma in a value is doubled.
    static std::string doubled_commas(std::string text) {
        for (std::size_t at = 0; (at = text.find(',', at)) != std::string::npos; at += 2) {
            text.insert(at, ",");
        }
        return text;
    }

    const TlsSetupOptions& command_;
    std::string folder_;
    std::string instructions_;
};

}  // namespace

std::string set_up_tls(const TlsSetupOptions& command) { return Setup(command).run(); }

}  // namespace gpunbd::server

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
