#include "config/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "config/build_text.hpp"
#include "config/completion.hpp"
#include "config/flags.hpp"
#include "config/help_text.hpp"
#include "config/quote.hpp"
#include "config/remedy.hpp"
#include "config/rules.hpp"
#include "config/schema.hpp"

namespace gpunbd::config {
namespace {

// Wrong usage, in words. It leaves parse_command_line() as a message and exit code 2.
struct Usage {
    std::string what;
};

// What was given to a command, as text.
class GivenFlags {
 public:
    GivenFlags(CLI::App& app, const Command& command) {
        for (const FlagGroup& group : command.groups) {
            for (const Flag& flag : group.flags) {
                if (flag.name != "--help") add(app, flag);
            }
        }
    }

    bool on(std::string_view name) const { return switches_.at(name); }
    bool given(std::string_view name) const {
        const auto found = values_.find(name);
        return found != values_.end() ? !found->second.empty() : on(name);
    }
    const std::vector<std::string>& all(std::string_view name) const { return values_.at(name); }
    const std::string* text(std::string_view name) const {
        const auto& values = all(name);
        if (values.size() > 1) {
            throw Usage{fmt::format("{} is given {} times; give it once", name, values.size())};
        }
        return values.empty() ? nullptr : &values.front();
    }

 private:
    void add(CLI::App& app, const Flag& flag) {
        const std::string spelling = flag.letter.empty()
                                         ? std::string(flag.name)
                                         : fmt::format("{},{}", flag.letter, flag.name);
        if (flag.takes.empty()) {
            app.add_flag(spelling, switches_[flag.name]);
        } else {
            // Every repetition is kept, so that text() can say what is wrong with it; each takes
            // one argument.
            app.add_option(spelling, values_[flag.name])->allow_extra_args(false);
        }
    }

    std::map<std::string_view, std::vector<std::string>> values_;
    std::map<std::string_view, bool> switches_;
};

const std::vector<FlagGroup>& serve_flags() { return find_command("serve")->groups; }

// Sets the key of the flag `name`.
void set(std::string_view name, std::string_view text, Options& options) {
    const auto wrong = set_key(find_flag(*find_command("serve"), name)->key, text, options);
    if (wrong) throw Usage{fmt::format("{}: {}", name, *wrong)};
}

void refuse_beside_file(const GivenFlags& flags) {
    for (const FlagGroup& group : serve_flags()) {
        for (const Flag& flag : group.flags) {
            if (flag.with_file || flag.name == "--help" || !flags.given(flag.name)) continue;
            throw Usage{
                fmt::format("--config and {} exclude each other: exports and listeners stand in "
                            "the file; leave one of the two out",
                            flag.name)};
        }
    }
}

// The name of a file, which may not be there yet.
std::optional<std::string> file_name(const GivenFlags& flags, std::string_view name) {
    const auto* file = flags.text(name);
    if (file == nullptr) return std::nullopt;
    if (!file->empty()) return *file;
    throw Usage{fmt::format("{}: the name of the file is empty; write for example {} {}", name,
                            name, find_flag(*find_command("serve"), name)->example)};
}

// Keys of the flags that take one value, in the order of the flags, with that value.
std::vector<std::pair<const Flag*, std::string>> single_values(const GivenFlags& flags) {
    std::vector<std::pair<const Flag*, std::string>> out;
    for (const FlagGroup& group : serve_flags()) {
        for (const Flag& flag : group.flags) {
            if (flag.key.empty() || flag.repeats || !flags.given(flag.name)) continue;
            out.emplace_back(&flag, flag.takes.empty() ? "true" : *flags.text(flag.name));
        }
    }
    return out;
}

void read_devices(const GivenFlags& flags, Options& out) {
    const auto& given = flags.all("--device");
    if (given.size() == 1 && given[0] == "auto") return;
    auto& devices = out.exports[0].devices;
    for (const std::string& device : given) {
        if (device == "auto") {
            throw Usage{"--device auto stands alone: it leaves the choice to gpunbd"};
        }
        set("--device", device, out);
        if (std::find(devices.begin(), devices.end() - 1, devices.back()) != devices.end() - 1) {
            throw Usage{fmt::format("--device {} is given twice; give each device once", device)};
        }
        if (devices.size() > rules::max_devices) {
            throw Usage{fmt::format("--device is given more than {} times", rules::max_devices)};
        }
    }
}

void read_device_options(const GivenFlags& flags, Options& out) {
    const std::vector<std::string>& ids = out.exports[0].devices;
    const std::string* reserve = flags.text("--reserve");
    if (reserve != nullptr && ids.empty()) {
        throw Usage{
            "--reserve needs to know of which device; add --device, for example --device "
            "cuda:0"};
    }
    const bool force = flags.on("--force-pci");
    if (force && std::none_of(ids.begin(), ids.end(), rules::is_bar)) {
        throw Usage{
            "--force-pci is about memory of PCI cards; add --device, for example --device "
            "pci:0000:01:00.0/2, or leave it out"};
    }
    for (const std::string& id : ids) {
        const bool forced = force && rules::is_bar(id);
        if (reserve == nullptr && !forced) continue;
        out.devices.emplace_back().id = id;
        if (reserve != nullptr) set("--reserve", *reserve, out);
        if (forced) set("--force-pci", "true", out);
    }
}

void read_export(const GivenFlags& flags, Options& out) {
    out.exports.emplace_back();
    for (const auto& [flag, text] : single_values(flags)) {
        if (flag->key.starts_with("exports[]")) set(flag->name, text, out);
    }
    if (const auto misfit = rules::stripe_misfit(out.exports[0], "--layout", "--page-size")) {
        throw Usage{"--stripe-size: " + *misfit};
    }
    if (const auto misfit = rules::size_misfit(out.exports[0], "--block-size")) {
        throw Usage{"--size: " + *misfit};
    }
    if (out.exports[0].swap && !flags.given("--provision")) {
        out.exports[0].provision = Provision::full;
    }
    read_devices(flags, out);
    read_device_options(flags, out);
}

// [CID:]PORT
void read_vsock(std::string_view text, Options& out) {
    out.vsock.emplace_back();
    const auto set_part = [&](std::string_view key, std::string_view part) {
        const auto wrong = set_key(key, part, out);
        if (wrong) throw Usage{fmt::format("--vsock: {}", *wrong)};
    };
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos) set_part("listeners.vsock[].cid", text.substr(0, colon));
    set_part("listeners.vsock[].port", text.substr(colon + 1));  // npos + 1 is 0
}

void read_listeners(const GivenFlags& flags, Options& out) {
    for (std::string_view name : {"--port", "--bind", "--unix", "--vsock"}) {
        if (flags.given("--run") && flags.given(name)) {
            throw Usage{
                fmt::format("--run and {} exclude each other: --run serves on a private "
                            "Unix socket; leave one of the two out",
                            name)};
        }
    }
    if (flags.given("--run")) return;

    std::set<std::string> seen;
    for (const std::string& path : flags.all("--unix")) {
        out.unix_sockets.emplace_back();
        set("--unix", path, out);
        if (!seen.insert(path).second) {
            throw Usage{
                fmt::format("--unix {} is given twice; give each path once", in_quotes(path))};
        }
    }
    for (const std::string& text : flags.all("--vsock")) {
        read_vsock(text, out);
        if (!seen.insert(fmt::format("{}:{}", out.vsock.back().cid, out.vsock.back().port))
                 .second) {
            throw Usage{
                fmt::format("--vsock {} is given twice; give each port once", in_quotes(text))};
        }
    }
    const bool others = flags.given("--unix") || flags.given("--vsock");
    if (others && !flags.given("--port") && !flags.given("--bind")) return;

    out.tcp = default_listeners(TcpListener{}.port);
    if (const auto* port = flags.text("--port")) {
        set("--port", *port, out);
        out.tcp = default_listeners(out.tcp.back().port);
    }
    if (!flags.given("--bind")) return;
    const std::uint16_t port = out.tcp[0].port;
    out.tcp.clear();
    for (const std::string& address : flags.all("--bind")) {
        out.tcp.emplace_back().port = port;
        set("--bind", address, out);
        if (!seen.insert(rules::tcp_identity(out.tcp.back())).second) {
            throw Usage{fmt::format("--bind {} is given twice; give each address once",
                                    in_quotes(address))};
        }
    }
}

// ADDRESS[:PORT], that of IPv6 in brackets where there is a port.
void read_admin(std::string_view text, ServeCommand& out) {
    const auto set_part = [&](std::string_view key, std::string_view part) {
        const auto wrong = set_key(key, part, out.options);
        if (wrong) throw Usage{fmt::format("--admin: {}", *wrong)};
        out.overrides.values.emplace_back(key, part);
    };
    std::string_view address = text;
    const std::size_t colon = text.rfind(':');
    const bool bracketed = text.starts_with('[');
    const bool has_port =
        colon != std::string_view::npos &&
        (bracketed ? colon > 0 && text[colon - 1] == ']' : text.find(':') == colon);
    if (has_port) {
        set_part("admin.tcp.port", text.substr(colon + 1));
        address = text.substr(0, colon);
    }
    if (bracketed && address.ends_with(']')) address = address.substr(1, address.size() - 2);
    set_part("admin.tcp.address", address);
}

ServeCommand read_serve(const GivenFlags& flags) {
    ServeCommand out;
    out.config_file = file_name(flags, "--config");
    if (out.config_file) refuse_beside_file(flags);
    out.pidfile = file_name(flags, "--pidfile");
    out.exit_with_parent = flags.on("--exit-with-parent");
    out.core_dumps = flags.on("--core-dumps");
    if (const auto* command = flags.text("--run")) {
        if (command->find_first_not_of(" \t\n") == std::string::npos) {
            throw Usage{"--run: the command is empty; write for example --run 'nbdinfo \"$uri\"'"};
        }
        out.run = *command;
    }
    if (!out.config_file) {
        read_export(flags, out.options);
        read_listeners(flags, out.options);
    }
    for (auto& [flag, text] : single_values(flags)) {
        if (!flag->with_file) continue;
        set(flag->name, text, out.options);
        out.overrides.values.emplace_back(flag->key, std::move(text));
    }
    if (const auto* admin = flags.text("--admin")) read_admin(*admin, out);
    out.overrides.apply_to(out.options);
    if (flags.given("--tls-verify-clients") && !out.config_file &&
        out.options.tls.certificates.empty()) {
        throw Usage{
            "--tls-verify-clients is about certificates; add --tls-certificates, or leave it out"};
    }
    if (out.options.tls.mode != TlsMode::off && !out.config_file &&
        !out.options.tls.has_credentials()) {
        throw Usage{
            "--tls: TLS needs certificates or shared keys; add for example --tls-certificates "
            "/etc/gpunbd/tls"};
    }
    return out;
}

std::optional<Question> read_question(const GivenFlags& flags) {
    const auto* who = flags.text("--who");
    if (who == nullptr) {
        for (std::string_view name : {"--tls-name", "--psk-user"}) {
            if (!flags.given(name)) continue;
            throw Usage{
                fmt::format("{} needs to know of which client; add --who, for example "
                            "--who 10.1.2.3",
                            name)};
        }
        return std::nullopt;
    }
    const auto text = [&](std::string_view name) -> std::optional<std::string> {
        const auto* given = flags.text(name);
        return given == nullptr ? std::nullopt : std::optional(*given);
    };
    return Question{*who, text("--tls-name"), text("--psk-user")};
}

// The arguments in the order that CLI11 wants, last one first.
std::vector<std::string> for_parser(const Arguments& line) {
    Arguments out;
    for (const std::string& argument : line) {
        // CLI11 would take the next argument for the value of "--name=".
        if (argument.size() > 3 && argument.substr(0, 2) == "--" && argument.back() == '=' &&
            argument.find('=') + 1 == argument.size()) {
            out.push_back(argument.substr(0, argument.size() - 1));
            out.emplace_back();
        } else {
            out.push_back(argument);
        }
    }
    std::reverse(out.begin(), out.end());
    return out;
}

// The command of the line, before it is parsed.
const Command& command_of(const Arguments& line) {
    for (const std::string& argument : line) {
        if (const Command* command = find_command(argument)) return *command;
    }
    return program();
}

// Takes the command line of a server, which is not this program's to read, off the end of keep's.
Arguments cut_off_server(Arguments& line) {
    const auto begin = std::find_if(line.begin(), line.end(), [](const std::string& argument) {
        return argument == "--" || argument == "serve";
    });
    const bool marked = begin != line.end() && *begin == "--";
    Arguments server(begin + (marked ? 1 : 0), line.end());
    line.erase(begin, line.end());
    return server;
}

// Refuses what `app` did not expect.
void refuse_extras(const CLI::App& app, const Command& command, const Arguments& line) {
    auto extras = app.remaining();
    // CLI11 leaves the mark that ends the flags among them.
    extras.erase(std::remove(extras.begin(), extras.end(), "--"), extras.end());
    if (extras.empty()) return;
    const std::string& first = extras.front();
    const bool is_flag = first.size() > 1 && first[0] == '-';
    throw Usage{is_flag ? about_unknown_flag(command, line, first)
                        : about_stray_word(command_of(line), line, first)};
}

std::string write_for_example(const Command& command) {
    return fmt::format("write for example gpunbd {} {}", command.name, command.example);
}

// The one argument of a command.
const std::string& only_argument(const Command& command, const std::vector<std::string>& given) {
    if (given.empty()) {
        throw Usage{fmt::format("{} is missing; {}", command.takes, write_for_example(command))};
    }
    if (given.size() > 1) {
        throw Usage{fmt::format("takes one {} at a time; leave {} out", command.takes,
                                in_quotes(given[1]))};
    }
    if (given[0].empty()) {
        throw Usage{fmt::format("the {} is empty; {}", command.takes, write_for_example(command))};
    }
    return given[0];
}

// The one argument of a command, which can be but a few words.
std::string_view only_word(const Command& command, std::string_view kind,
                           const std::vector<std::string>& given) {
    const std::string& word = only_argument(command, given);
    for (std::string_view known : command.words) {
        if (known == word) return known;
    }
    throw Usage{fmt::format("{} is none of the {} {}; {}", in_quotes(word), kind,
                            rules::either(command.words), write_for_example(command))};
}

template <class Rule>
std::vector<std::string> checked_all(const GivenFlags& flags, std::string_view name, Rule rule) {
    std::vector<std::string> out;
    for (const std::string& text : flags.all(name)) {
        auto checked = rule(text);
        if (const auto* wrong = std::get_if<rules::Wrong>(&checked)) {
            throw Usage{fmt::format("{}: {}", name, wrong->what)};
        }
        if (std::find(out.begin(), out.end(), text) != out.end()) {
            throw Usage{fmt::format("{} {} is given twice; give each once", name, text)};
        }
        out.push_back(text);
    }
    return out;
}

std::uint64_t checked_integer(std::string_view flag, const std::string& text,
                              rules::IntegerRange range) {
    const auto checked = rules::integer(text, range);
    if (const auto* wrong = std::get_if<rules::Wrong>(&checked)) {
        throw Usage{fmt::format("{}: {}", flag, wrong->what)};
    }
    return std::get<std::uint64_t>(checked);
}

TlsSetupCommand read_tls_setup(const GivenFlags& flags, const std::string& folder) {
    TlsSetupCommand out{.folder = folder,
                        .hosts = checked_all(flags, "--host", rules::host_name),
                        .clients = checked_all(flags, "--client", rules::client_name),
                        .users = checked_all(flags, "--psk", rules::client_name)};
    if (out.hosts.empty() && out.clients.empty() && out.users.empty()) {
        throw Usage{
            "nothing to make; name the server as clients call it, for example --host "
            "storage.example.org, or a user of a shared key: --psk alice"};
    }
    if (const auto* days = flags.text("--days")) {
        out.days = static_cast<int>(checked_integer("--days", *days, {1, 3650}));
    }
    return out;
}

KeepCommand read_keep(const GivenFlags& flags, Arguments server) {
    KeepCommand out;
    const auto read = [&](std::string_view name, rules::IntegerRange range, std::uint64_t& value) {
        if (const auto* text = flags.text(name)) value = checked_integer(name, *text, range);
    };
    read("--max-restarts", {1, 10'000}, out.max_restarts);
    read("--within", {1, 86'400}, out.within);
    read("--max-descriptors", {1, 100'000}, out.max_descriptors);
    out.swap = flags.on("--swap");
    if (server.empty()) {
        throw Usage{"what to run is missing; write for example gpunbd keep -- serve --size 1G"};
    }
    if (server.front() != "serve") {
        throw Usage{
            fmt::format("{} cannot be kept, only a server; write for example gpunbd keep -- "
                        "serve --size 1G",
                        in_quotes(server.front()))};
    }
    for (const std::string& each : server) {
        if (each != "--run" && !each.starts_with("--run=")) continue;
        throw Usage{
            "--run ends the server with its command, and nothing is left to keep; leave keep out"};
    }
    out.server = std::move(server);
    return out;
}

DoctorCommand read_doctor(const GivenFlags& flags) {
    DoctorCommand out{.json = flags.on("--json")};
    if (const auto* file = flags.text("--config")) out.config_file = *file;
    return out;
}

KeptCommand read_kept(const Command& command, const GivenFlags& flags,
                      const std::vector<std::string>& words) {
    KeptCommand out{.json = flags.on("--json")};
    if (!words.empty()) out.config_file = only_argument(command, words);
    if (const auto* socket = flags.text("--socket")) {
        if (out.config_file) {
            throw Usage{"FILE and --socket both say which server is asked; give one of them"};
        }
        auto path = rules::unix_path(*socket);
        if (const auto* wrong = std::get_if<rules::Wrong>(&path)) {
            throw Usage{fmt::format("--socket: {}", wrong->what)};
        }
        out.socket = *socket;
    }
    if (const auto* drop = flags.text("--drop")) {
        auto name = rules::export_name(*drop);
        if (const auto* wrong = std::get_if<rules::Wrong>(&name)) {
            throw Usage{fmt::format("--drop: {}", wrong->what)};
        }
        if (out.json) throw Usage{"--json is for the list; leave it out with --drop"};
        out.drop = *drop;
    }
    return out;
}

// The N of /dev/nbdN.
std::uint32_t nbd_device(std::string_view text) {
    constexpr std::string_view start = "/dev/nbd";
    constexpr std::uint64_t last = (1U << 20) - 1;  // of the kernel's minor numbers
    if (text.starts_with(start)) {
        const auto number = rules::integer(text.substr(start.size()), {0, last});
        if (const auto* value = std::get_if<std::uint64_t>(&number)) {
            return static_cast<std::uint32_t>(*value);
        }
    }
    throw Usage{fmt::format("{} is no NBD device; write for example /dev/nbd0", in_quotes(text))};
}

AttachListCommand read_attach_list(const GivenFlags& flags, const std::vector<std::string>& words) {
    if (!words.empty()) {
        throw Usage{fmt::format("--list tells of all devices; leave {} out", in_quotes(words[0]))};
    }
    for (std::string_view name :
         {"--connections", "--timeout", "--dead-timeout", "--block-size", "--swap", "--systemd"}) {
        if (!flags.given(name)) continue;
        throw Usage{fmt::format("--list attaches nothing; leave {} out", name)};
    }
    return {.json = flags.on("--json")};
}

AttachCommand read_attach(const Command& command, const GivenFlags& flags,
                          const std::vector<std::string>& words) {
    if (flags.on("--json")) throw Usage{"--json is for --list; leave it out"};
    if (words.size() > 2) {
        throw Usage{fmt::format("takes one URI and one DEVICE; leave {} out", in_quotes(words[2]))};
    }
    if (words.size() < 2) {
        const bool has_uri = !words.empty() && words[0].find("://") != std::string::npos;
        throw Usage{fmt::format("{} missing; {}",
                                has_uri         ? "DEVICE is"
                                : words.empty() ? "URI and DEVICE are"
                                                : "URI is",
                                write_for_example(command))};
    }
    AttachCommand out{.uri = words[0],
                      .device = nbd_device(words[1]),
                      .swap = flags.on("--swap"),
                      .unit = flags.on("--systemd")};
    constexpr std::uint64_t day = 86'400;
    if (const auto* text = flags.text("--connections")) {
        out.connections = static_cast<unsigned>(checked_integer("--connections", *text, {1, 256}));
    }
    if (const auto* text = flags.text("--timeout")) {
        out.timeout = checked_integer("--timeout", *text, {0, day});
    }
    if (const auto* text = flags.text("--dead-timeout")) {
        out.dead_timeout = checked_integer("--dead-timeout", *text, {1, 365 * day});
    }
    if (const auto* text = flags.text("--block-size")) {
        const auto size = rules::bytes(*text, {512, 4096, true});
        if (const auto* wrong = std::get_if<rules::Wrong>(&size)) {
            throw Usage{fmt::format("--block-size: {}", wrong->what)};
        }
        out.block_size = static_cast<std::uint32_t>(std::get<std::uint64_t>(size));
    }
    return out;
}

PingCommand read_ping(const GivenFlags& flags, const std::string& uri) {
    PingCommand out{.uri = uri};
    if (const auto* timeout = flags.text("--timeout")) {
        out.timeout = checked_integer("--timeout", *timeout, {1, 3600});
    }
    return out;
}

// HOST[:PORT], of which the host may be an IPv6 address in brackets.
AskedServer::Url read_host_and_port(std::string_view text) {
    AskedServer::Url out{.host = {}, .port = "80"};
    const bool brackets = text.starts_with('[');
    const std::size_t end = brackets ? text.find(']') : text.find(':');
    if (brackets && end == std::string_view::npos) throw Usage{"--url: the [ in it has no ]"};
    const std::string_view host = text.substr(0, end).substr(brackets ? 1 : 0);
    std::string_view rest = end == std::string_view::npos ? "" : text.substr(end);
    if (brackets && !rest.empty()) rest.remove_prefix(1);
    if (!rest.empty()) {
        const auto port =
            rest[0] == ':'
                ? rules::port(rest.substr(1))
                : rules::Wrong{fmt::format("{} stands behind the host", in_quotes(rest))};
        if (const auto* wrong = std::get_if<rules::Wrong>(&port)) {
            throw Usage{"--url: " + wrong->what};
        }
        out.port = rest.substr(1);
    }
    const auto checked = rules::host_name(host);
    if (const auto* wrong = std::get_if<rules::Wrong>(&checked)) {
        throw Usage{"--url: " + wrong->what};
    }
    out.host = host;
    return out;
}

AskedServer::Url read_url(std::string_view url) {
    constexpr std::string_view scheme = "http://";
    if (url.starts_with("https://")) {
        throw Usage{
            "--url: https is not for this command; ask over --socket on the server's machine, or "
            "with --url http:// through a tunnel such as ssh -L"};
    }
    if (!url.starts_with(scheme)) {
        throw Usage{fmt::format(
            "--url: {} is no URL; write for example --url http://127.0.0.1:9809", in_quotes(url))};
    }
    url.remove_prefix(scheme.size());
    if (url.ends_with('/')) url.remove_suffix(1);
    return read_host_and_port(url);
}

AskedServer read_asked_server(const GivenFlags& flags) {
    AskedServer out;
    const auto* socket = flags.text("--socket");
    const auto* url = flags.text("--url");
    if (socket != nullptr && url != nullptr) {
        throw Usage{"--socket and --url both say which server is asked; give one of them"};
    }
    if (socket != nullptr) {
        const auto path = rules::unix_path(*socket);
        if (const auto* wrong = std::get_if<rules::Wrong>(&path)) {
            throw Usage{fmt::format("--socket: {}", wrong->what)};
        }
        out.socket = *socket;
    }
    if (url != nullptr) out.url = read_url(*url);
    if (const auto* token = flags.text("--token")) {
        if (!out.url) throw Usage{"--token is for a server that is asked by --url; add --url"};
        const auto path = rules::file_path(*token);
        if (const auto* wrong = std::get_if<rules::Wrong>(&path)) {
            throw Usage{fmt::format("--token: {}", wrong->what)};
        }
        out.token = *token;
    }
    return out;
}

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

}  // namespace

void Overrides::apply_to(Options& options) const {
    bool credentials = false;
    bool mode = false;
    for (const auto& [key, text] : values) {
        set_key(key, text, options);
        credentials = credentials || key == "tls.certificates" || key == "tls.psk";
        mode = mode || key == "tls.mode";
    }
    // Who shows a certificate wants TLS.
    if (credentials && !mode && options.tls.mode == TlsMode::off) {
        options.tls.mode = TlsMode::required;
    }
    options.pipeline.pinned =
        std::max(options.pipeline.pinned, rules::min_pinned(options.pipeline));
}

CommandLine parse_command_line(int argc, const char* const* argv) {
    Arguments line(argv + std::min(argc, 1), argv + argc);
    const Command& command = command_of(line);
    Arguments server;
    if (command.name == "keep") server = cut_off_server(line);

    CLI::App app("", "gpunbd");
    app.set_help_flag("-h,--help", "");
    app.allow_extras();
    app.require_subcommand(0, 1);
    const GivenFlags program_flags(app, program());
    std::map<std::string_view, CLI::App*> apps;
    std::map<std::string_view, GivenFlags> flags;
    std::vector<std::string> words;  // arguments that belong to no flag
    for (const Command& each : commands()) {
        CLI::App& sub = *app.add_subcommand(std::string(each.name));
        sub.allow_extras();
        flags.emplace(std::piecewise_construct, std::forward_as_tuple(each.name),
                      std::forward_as_tuple(sub, each));
        if (!each.takes.empty()) sub.add_option("arguments", words);
        apps.emplace(each.name, &sub);
    }

    const auto finish = [](int exit_code, std::string message) {
        CommandLine out;
        out.exit_code = exit_code;
        out.message = std::move(message);
        return out;
    };
    const auto wrong_usage = [&](const std::string& what) {
        const std::string name =
            command.name.empty() ? "gpunbd" : fmt::format("gpunbd {}", command.name);
        return finish(2, fmt::format("{}: {} (see '{} --help')\n", name, one_line(what), name));
    };

    try {
        if (const auto wrong = about_misread_flag(command, line); !wrong.empty()) {
            throw Usage{wrong};
        }
        app.parse(for_parser(line));
        refuse_extras(app, program(), line);
        const bool verbose = program_flags.on("--verbose");
        if (program_flags.on("--version")) {
            return finish(0, verbose ? build_text() : version_text());
        }
        if (verbose) {
            throw Usage{
                "--verbose goes with --version: gpunbd --version --verbose; for a log that says "
                "more: gpunbd serve --log-level debug"};
        }
        if (command.name.empty()) {
            throw Usage{"no command; write for example gpunbd serve --size 1G"};
        }
        refuse_extras(*apps.at(command.name), command, line);
        CommandLine out;
        if (command.name == "serve") {
            out.serve = read_serve(flags.at(command.name));
        } else if (command.name == "keep") {
            out.keep = read_keep(flags.at(command.name), std::move(server));
        } else if (command.name == "kept") {
            out.kept = read_kept(command, flags.at(command.name), words);
        } else if (command.name == "attach" && flags.at(command.name).on("--list")) {
            out.attach_list = read_attach_list(flags.at(command.name), words);
        } else if (command.name == "attach") {
            out.attach = read_attach(command, flags.at(command.name), words);
        } else if (command.name == "detach") {
            out.detach = DetachCommand{nbd_device(only_argument(command, words)),
                                       flags.at(command.name).on("--force")};
        } else if (command.name == "ping") {
            out.ping = read_ping(flags.at(command.name), only_argument(command, words));
        } else if (command.name == "status") {
            const GivenFlags& given = flags.at(command.name);
            out.status = StatusCommand{.server = read_asked_server(given),
                                       .json = given.on("--json"),
                                       .watch = given.on("--watch")};
        } else if (command.name == "top") {
            out.top = TopCommand{read_asked_server(flags.at(command.name))};
        } else if (command.name == "devices") {
            out.devices = DevicesCommand{flags.at(command.name).on("--calibrate")};
        } else if (command.name == "check") {
            out.check =
                CheckCommand{only_argument(command, words), read_question(flags.at(command.name))};
        } else if (command.name == "doctor") {
            out.doctor = read_doctor(flags.at(command.name));
            if (!words.empty()) out.doctor->topic = only_word(command, "topics", words);
        } else if (command.name == "tls-setup") {
            out.tls_setup = read_tls_setup(flags.at(command.name), only_argument(command, words));
        } else {
            return finish(0, completion_script(only_word(command, "shells", words)));
        }
        return out;
    } catch (const Usage& usage) {
        return wrong_usage(usage.what);
    } catch (const CLI::CallForHelp&) {
        return finish(0, help_text(command));
    } catch (const CLI::ParseError& error) {
        return wrong_usage(error.what());
    }
}

}  // namespace gpunbd::config
