
#include <type_traits>

#include "config/command_line/help_text.hpp"
#include "config/command_line/parse.hpp"
#include "config/devices/device_drivers.hpp"
#include "config/serve_command.hpp"
#include "config/yaml_file.hpp"
#include "server/commands/commands.hpp"
#include "server/tools/attach/subcommand.hpp"
#include "server/tools/check/subcommand.hpp"
#include "server/tools/completion/scripts.hpp"
#include "server/tools/detach/subcommand.hpp"
#include "server/tools/devices/subcommand.hpp"
#include "server/tools/keep/subcommand.hpp"
#include "server/tools/kept/subcommand.hpp"
#include "server/tools/serve/subcommand.hpp"
#include "server/tools/status/subcommand.hpp"
#include "server/tools/tls_setup/subcommand.hpp"
#include "server/tools/top/subcommand.hpp"
#include "tests/config/text.hpp"
#include "tests/test.hpp"

namespace gpunbd::config {
namespace {

// A parsed command line. `commands` owns the selected command.
struct CommandLine {
    std::shared_ptr<Commands> commands;
    std::optional<int> exit_code;
    std::string message;
    bool as_json = false;
    const Command* selected = nullptr;

    // Fails the test if another command is selected.
    template <class Selected>
    const Selected& as() const {
        const auto* const found = dynamic_cast<const Selected*>(selected);
        REQUIRE_MESSAGE(found != nullptr, message);
        return *found;
    }
};

CommandLine parse_line(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "gpunbd");
    CommandLine out;
    out.commands = std::make_shared<Commands>(server::all_commands());
    const Parsed parsed =
        parse(*out.commands, static_cast<int>(arguments.size()), arguments.data());
    out.exit_code = parsed.exit_code;
    out.message = parsed.message;
    out.as_json = parsed.as_json;
    out.selected = parsed.command;
    return out;
}

// A command line with wrong usage, and its message without "gpunbd COMMAND: ".
struct WrongUsage {
    std::vector<const char*> arguments;
    std::string message;
};

// `message`: with the name of the program or command that it is about.
void check_message(const WrongUsage& wrong, const std::string& message) {
    CAPTURE(message);
    const CommandLine line = parse_line(wrong.arguments);
    const std::string command = message.substr(0, message.find(':'));
    CHECK(line.exit_code == 2);
    CHECK(line.message ==
          (line.as_json ? wrong.message : message + " (see '" + command + " --help')\n"));
    CHECK(line.selected == nullptr);
}
void check(const WrongUsage& wrong) {
    check_message(wrong, std::string("gpunbd ") + wrong.arguments.at(0) + ": " + wrong.message);
}

// The output of a command that does not depend on the machine.
std::string output_of(std::vector<const char*> arguments) {
    const Commands commands = server::all_commands();
    const CommandLine line = parse_line(arguments);
    if (line.exit_code) return line.message;
    REQUIRE(arguments.size() <= 2);
    if (std::string_view(arguments[0]) == "completion") {
        return tools::completion_script(arguments[1], commands);
    }
    if (arguments.size() == 1) return help_text(program(), commands);
    return help_text(*find_command(commands, arguments[1]), commands);
}

ServeCommand serve(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "serve");
    const CommandLine line = parse_line(std::move(arguments));
    REQUIRE_FALSE(line.exit_code.has_value());
    return line.as<tools::ServeCommand>().settings;
}

const std::vector<TcpListener> loopback = default_listeners(10809);

TEST_CASE("serve without flags") {
    const ServeCommand command = serve({});
    Options expected;
    expected.tcp = loopback;
    expected.exports = {ExportOptions{}};
    CHECK(command.options == expected);
    CHECK_FALSE(command.options.exports[0].size.has_value());
    CHECK(command.options.exports[0].devices.empty());
    CHECK_FALSE(command.config_file.has_value());
    CHECK_FALSE(command.run.has_value());
}

TEST_CASE("serve with BARs of PCI cards: normalized ids, and the forced cards") {
    const Options o = serve({"--device", "pci:0A:00.0/2", "--device", "host", "--device",
                             "pci:10000:01:1f.7/0", "--force-pci"})
                          .options;
    CHECK(o.exports[0].devices ==
          std::vector<std::string>{"pci:0000:0a:00.0/2", "host", "pci:10000:01:1f.7/0"});
    DeviceOptions first;
    first.id = "pci:0000:0a:00.0/2";
    first.force = true;
    DeviceOptions second = first;
    second.id = "pci:10000:01:1f.7/0";
    CHECK(o.devices == std::vector<DeviceOptions>{first, second});
    CHECK(serve({"--device", "pci:0a:00.0/2"}).options.devices.empty());
    check_written(o);
}

TEST_CASE("serve with every flag") {
    const ServeCommand command = serve(
        {"--name",        "fast",        "--size",       "1.5GiB",        "--device", "cuda:0",
         "--device=host", "--layout",    "stripe",       "--stripe-size", "8M",       "--provision",
         "full",          "--page-size", "4M",           "--reserve",     "2G",       "--readonly",
         "--block-size",  "512",         "-p",           "1234",          "-b",       "0.0.0.0",
         "--bind",        "::",          "-U",           "/run/a.sock",   "--unix",   "/run/b.sock",
         "--threads",     "3",           "--chunk-size", "512K",          "--slots",  "4",
         "--log-level",   "debug",       "--log-format", "json",          "--trace"});
    const Options& o = command.options;
    REQUIRE(o.exports.size() == 1);
    CHECK(o.exports[0].name == "fast");
    CHECK(o.exports[0].size == Size{.bytes = 1536 * MiB});
    CHECK(o.exports[0].devices == std::vector<std::string>{"cuda:0", "host"});
    CHECK(o.exports[0].layout == LayoutKind::stripe);
    CHECK(o.exports[0].stripe_size == 8 * MiB);
    CHECK(o.exports[0].provision == Provision::full);
    CHECK(o.exports[0].page_size == 4 * MiB);
    CHECK(o.exports[0].read_only);
    CHECK(o.exports[0].block_size == BlockSizes{512, std::nullopt, 32 * MiB});
    CHECK(o.devices == std::vector<DeviceOptions>{
                           {"cuda:0", 2 * GiB, std::nullopt, std::nullopt, GpuUse::automatic},
                           {"host", 2 * GiB, std::nullopt, std::nullopt, GpuUse::automatic}});
    CHECK(o.tcp == std::vector<TcpListener>{{"0.0.0.0", 1234}, {"::", 1234}});
    CHECK(o.unix_sockets ==
          std::vector<UnixListener>{{"/run/a.sock", 0600, ""}, {"/run/b.sock", 0600, ""}});
    CHECK(o.threads == 3);
    CHECK(o.pipeline == PipelineOptions{512 * KiB, 4, 16 * MiB});
    CHECK(o.log == LogOptions{"debug", LogFormat::json});
    CHECK(o.trace);

    // A configuration file can express everything that flags can.
    check_written(o);
}

TEST_CASE("serve with spill memory") {
    const Options o = serve({"--device", "cuda:0", "--spill", "host=64G", "--spill",
                             "/var/spill/a=b=200G", "--reserve", "1G"})
                          .options;
    REQUIRE(o.devices.size() == 1);
    CHECK(o.devices[0].reserve == GiB);
    CHECK(o.devices[0].spill ==
          std::vector<SpillOptions>{{"host", 64 * GiB}, {"file:/var/spill/a=b", 200 * GiB}});
    check_written(o);
    for (const auto& [given, why] : std::vector<std::pair<const char*, const char*>>{
             {"host", "'host' is not PLACE=SIZE; write for example host=64G"},
             {"floppy=1G", "'floppy' is not a device"},
             {"host=x", "'x'"},
             {"cuda:0=1G", "cuda:0 cannot take its own pages"}}) {
        CAPTURE(given);
        const auto line = parse_line({"serve", "--device", "cuda:0", "--spill", given});
        CHECK(line.exit_code == 2);
        CHECK(contains(line.message, "--spill"));
        CHECK(contains(line.message, why));
    }
    CHECK(contains(parse_line({"serve", "--spill", "host=1G"}).message, "requires --device"));
}

TEST_CASE("flags are accepted under their former names") {
    CHECK(serve({"--readonly"}).options.exports[0].read_only);
    CHECK(serve({"--read-only"}).options.exports[0].read_only);
    CHECK_FALSE(serve({}).options.exports[0].read_only);
}

TEST_CASE("--swap allocates all memory at the start by default") {
    CHECK(serve({"--swap"}).options.any_swap());
    CHECK(serve({"--swap"}).options.exports[0].provision == Provision::full);
    CHECK(serve({"--swap", "--provision", "thin"}).options.exports[0].provision == Provision::thin);
    CHECK_FALSE(serve({}).options.any_swap());
    CHECK(serve({}).options.exports[0].provision == Provision::thin);
}

TEST_CASE("listeners by flags") {
    struct Row {
        const char* name;
        std::vector<const char*> arguments;
        std::vector<TcpListener> tcp;
        std::size_t unix_sockets;
    };
    const Row rows[] = {
        {"port", {"-p", "1"}, default_listeners(1), 0},
        {"port, attached", {"-p1"}, default_listeners(1), 0},
        {"port, long", {"--port=65535"}, default_listeners(65535), 0},
        {"address", {"-b", "10.1.2.3"}, {{"10.1.2.3", 10809}}, 0},
        // An address that is named explicitly must be available.
        {"addresses as by default",
         {"-b", "127.0.0.1", "-b", "::1"},
         {{"127.0.0.1", 10809}, {"::1", 10809}},
         0},
        {"Unix only", {"-U", "a"}, {}, 1},
        {"Unix and port", {"-U", "a", "-p", "10809"}, loopback, 1},
        {"Unix and address", {"-b", "::1", "-U", "a", "-U", "b"}, {{"::1", 10809}}, 2},
        {"run", {"--run", "true"}, {}, 0},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const ServeCommand command = serve(row.arguments);
        CHECK(command.options.tcp == row.tcp);
        CHECK(command.options.unix_sockets.size() == row.unix_sockets);
    }
}

TEST_CASE("TLS by flags") {
    CHECK(serve({"--tls-certificates", "/c"}).options.tls ==
          TlsOptions{TlsMode::required, "/c", true, ""});
    CHECK(serve({"--tls-psk", "/k", "--tls", "optional"}).options.tls ==
          TlsOptions{TlsMode::optional, "", true, "/k"});
    CHECK_FALSE(serve({"--tls-certificates", "/c", "--tls-verify-clients", "false"})
                    .options.tls.verify_clients);
    // With --config, TLS flags override the file and require TLS.
    Options from_file;
    serve({"--config", "f", "--tls-psk", "/k"}).overrides.apply_to(from_file);
    CHECK(from_file.tls == TlsOptions{TlsMode::required, "", true, "/k"});
    from_file.tls = {TlsMode::optional, "/c", true, ""};
    serve({"--config", "f", "--tls-psk", "/k"}).overrides.apply_to(from_file);
    CHECK(from_file.tls == TlsOptions{TlsMode::optional, "/c", true, "/k"});
    serve({"--config", "f", "--tls", "off"}).overrides.apply_to(from_file);
    CHECK(from_file.tls == TlsOptions{TlsMode::off, "/c", true, "/k"});
    for (const std::vector<const char*>& wrong :
         {std::vector<const char*>{"serve", "--tls", "required"},
          {"serve", "--tls-psk", "/k", "--tls-verify-clients", "true"},
          {"serve", "--tls", "yes", "--tls-psk", "/k"},
          {"serve", "--tls-psk", ""}}) {
        const CommandLine line = parse_line(wrong);
        CAPTURE(line.message);
        CHECK(line.exit_code == 2);
        CHECK(contains(line.message, "--tls"));
    }
}

TEST_CASE("unusual but valid values") {
    CHECK(serve({"--name", ""}).options.exports[0].name == "");
    const ServeCommand empty = serve({"--name=", "--size", "50%"});
    CHECK(empty.options.exports[0].name == "");
    CHECK(empty.options.exports[0].size == Size{.percent = 50});
    CHECK(serve({"--name", "a b=c"}).options.exports[0].name == "a b=c");
    CHECK(serve({"--run", "[ -e \"$unixsocket\" ]"}).run == "[ -e \"$unixsocket\" ]");
    CHECK(serve({"--device", "auto"}).options.exports[0].devices.empty());
    CHECK(serve({"--chunk-size", "16M"}).options.pipeline.pinned == 64 * MiB);
}

TEST_CASE("flags of the process: pid file and parent, with or without --config") {
    CHECK_FALSE(serve({}).exit_with_parent);
    CHECK_FALSE(serve({}).pidfile.has_value());
    CHECK(serve({"--exit-with-parent"}).exit_with_parent);
    CHECK_FALSE(serve({}).background);
    CHECK(serve({"--config", "c", "--background", "--pidfile=p"}).background);
    CHECK(serve({"--pidfile", "/run/a b.pid"}).pidfile == "/run/a b.pid");
    const ServeCommand all =
        serve({"--config", "c", "--run", "true", "--exit-with-parent", "--pidfile=p"});
    CHECK(all.exit_with_parent);
    CHECK(all.pidfile == "p");
    CHECK(all.run == "true");
    CHECK(all.config_file == "c");
}

TEST_CASE("serve with a file") {
    const ServeCommand plain = serve({"--config", "/etc/gpunbd/gpunbd.yaml"});
    CHECK(plain.config_file == "/etc/gpunbd/gpunbd.yaml");
    CHECK(plain.options == Options{});

    const ServeCommand command = serve({"--config", "c", "--run", "true", "--threads", "2",
                                        "--chunk-size", "16M", "--log-level", "error", "--trace"});
    CHECK(command.run == "true");
    Loaded loaded = load_text("exports: [{}]\nthreads: 9\nlog: {level: debug, format: json}", "c");
    REQUIRE(loaded.problems.empty());
    command.overrides.apply_to(loaded.options);
    CHECK(loaded.options.threads == 2);
    CHECK(loaded.options.pipeline == PipelineOptions{16 * MiB, 2, 64 * MiB});
    CHECK(loaded.options.log == LogOptions{"error", LogFormat::json});
    CHECK(loaded.options.trace);

    const Options before = loaded.options;
    Overrides{}.apply_to(loaded.options);
    CHECK(loaded.options == before);
}

TEST_CASE("insecure: as a flag, and with a file") {
    CHECK_FALSE(serve({}).options.insecure);
    CHECK(serve({"-b", "0.0.0.0", "--insecure"}).options.insecure);
    Options loaded;
    serve({"--config", "f", "--insecure"}).overrides.apply_to(loaded);
    CHECK(loaded.insecure);
}

TEST_CASE("the help of an action has its flags only") {
    for (const std::vector<const char*>& words :
         {std::vector<const char*>{"export", "remove", "--help"},
          {"--help", "export", "remove"},
          {"export", "--json", "remove", "a", "-h"}}) {
        const CommandLine line = parse_line(words);
        CHECK(line.exit_code == 0);
        CHECK(line.message.starts_with("gpunbd export remove - remove exports\n"));
        CHECK(contains(line.message, "Usage: gpunbd export remove NAME..."));
        CHECK(contains(line.message, "--force"));
        CHECK(contains(line.message, "--socket"));
        for (const char* other : {"--persist", "--size", "--threads", "Keys of", "export create"}) {
            CAPTURE(other);
            CHECK_FALSE(contains(line.message, other));
        }
    }
    CHECK(contains(parse_line({"export", "create", "-h"}).message, "--size"));
    const std::string whole = parse_line({"export", "--help"}).message;
    CHECK(contains(whole, "gpunbd export resize NAME SIZE"));
    CHECK(contains(whole, "--persist"));
}

TEST_CASE("wrong usage with --json is for a program") {
    const std::vector<const char*> words{"gpunbd", "export", "rm", "a", "--json"};
    const Parsed parsed =
        parse(server::all_commands(), static_cast<int>(words.size()), words.data());
    CHECK(parsed.exit_code == 2);
    CHECK(parsed.as_json);
    CHECK(parsed.message == "unknown action 'rm'; did you mean gpunbd export remove?");
}

TEST_CASE("kept: selects the server and the action") {
    const auto kept = [](std::vector<const char*> flags) {
        flags.insert(flags.begin(), "kept");
        const CommandLine line = parse_line(flags);
        const auto& command = line.as<tools::KeptCommand>();
        return std::pair(command.config_file, command.settings);
    };
    const auto [no_file, plain] = kept({});
    CHECK_FALSE(no_file);
    CHECK_FALSE(plain.socket);
    CHECK_FALSE(plain.json);
    CHECK_FALSE(plain.drop);
    CHECK(kept({"--json"}).second.json);
    CHECK(kept({"a.yaml"}).first == "a.yaml");
    const auto dropping = kept({"--socket", "/run/s", "--drop", "one"}).second;
    CHECK(dropping.socket == "/run/s");
    CHECK(dropping.drop == "one");
    CHECK(kept({"--drop", ""}).second.drop == "");
    const auto wrong = [](std::vector<const char*> words) { return parse_line(words).message; };
    CHECK(contains(wrong({"kept", "a.yaml", "--socket", "b"}), "give one of them"));
    CHECK(contains(wrong({"kept", "--drop", "a\nb"}), "--drop: "));
    CHECK(contains(wrong({"kept", "--socket", ""}), "--socket: "));
    CHECK(contains(wrong({"kept", "a", "b"}), "one FILE at a time"));

    Options loaded;
    serve({"--config", "f", "--keeping-socket", "/run/k"}).overrides.apply_to(loaded);
    CHECK(loaded.keeping.socket == "/run/k");
}

TEST_CASE("--admin is an address with or without a port") {
    const std::tuple<const char*, const char*, std::uint16_t> rows[] = {
        {"127.0.0.1:80", "127.0.0.1", 80},
        {"127.0.0.1", "127.0.0.1", 9809},
        {"[::1]:80", "::1", 80},
        {"[::1]", "::1", 9809},
        {"::1", "::1", 9809}};
    for (const auto& [text, address, port] : rows) {
        CAPTURE(text);
        Options loaded;
        serve({"--config", "f", "--admin", text}).overrides.apply_to(loaded);
        CHECK(loaded.admin.tcp.address == address);
        CHECK(loaded.admin.tcp.port == port);
    }
    for (const char* text : {"", ":80", "localhost:80", "[::1", "[]", "127.0.0.1:", "127.0.0.1:x",
                             "127.0.0.1:0", "[::1]80"}) {
        CAPTURE(text);
        CHECK(contains(parse_line({"serve", "--admin", text}).message, "--admin: "));
    }
    const ServeCommand rest = serve({"--admin-socket", "none", "--admin-token", "/t"});
    CHECK(rest.options.admin.socket == "none");
    CHECK(rest.options.admin.tcp.token == "/t");
}

TEST_CASE("devices and check") {
    using tools::CheckCommand;
    using tools::DevicesCommand;
    CHECK_FALSE(parse_line({"devices"}).as<DevicesCommand>().calibrate);
    CHECK(parse_line({"devices", "--calibrate"}).as<DevicesCommand>().calibrate);
    const CommandLine plain = parse_line({"check", "a.yaml"});
    CHECK(plain.as<CheckCommand>().file == "a.yaml");
    CHECK_FALSE(plain.as<CheckCommand>().who.has_value());
    CHECK(parse_line({"check", "serve"}).as<CheckCommand>().file == "serve");
    CHECK(parse_line({"check", "--", "-a"}).as<CheckCommand>().file == "-a");
    const CommandLine question_line =
        parse_line({"check", "f", "--who", "10.1.2.3", "--tls-name", "a"});
    const auto& question = question_line.as<CheckCommand>();
    CHECK(question.file == "f");
    CHECK(question.who == "10.1.2.3");
    CHECK(question.tls_name == "a");
    const CommandLine user = parse_line({"check", "f", "--who", "::1", "--psk-user", "b"});
    CHECK(user.as<CheckCommand>().psk_user == "b");
}

TEST_CASE("help and version go to standard output") {
    const std::pair<std::vector<const char*>, const char*> rows[] = {
        {{"--help"}, "gpunbd - "},
        {{"-h"}, "gpunbd - "},
        {{"serve", "--help"}, "gpunbd serve - "},
        {{"--help", "serve"}, "gpunbd serve - "},
        {{"serve", "--size", "8G", "-h"}, "gpunbd serve - "},
        {{"devices", "--help"}, "gpunbd devices - "},
        {{"check", "--help"}, "gpunbd check - "},
        {{"completion", "--help"}, "gpunbd completion - "},
        {{"help"}, "gpunbd - "},
        {{"help", "serve"}, "gpunbd serve - "},
        {{"help", "tls-setup"}, "gpunbd tls-setup - "},
        {{"help", "help"}, "gpunbd help - "},
        {{"help", "--help"}, "gpunbd help - "},
        {{"completion", "bash"}, "# bash completion"},
        {{"completion", "zsh"}, "#compdef gpunbd\n"},
        {{"completion", "fish"}, "# fish completion"},
        {{"--version"}, "gpunbd "},
        {{"--version", "--verbose"}, "gpunbd "},
        {{"--verbose", "--version"}, "gpunbd "},
    };
    for (const auto& [arguments, start] : rows) {
        CAPTURE(start);
        const CommandLine line = parse_line(arguments);
        CHECK(line.exit_code.value_or(0) == 0);
        const std::string output = output_of(arguments);
        CHECK(output.starts_with(start));
        CHECK(output.back() == '\n');
        CHECK(dynamic_cast<const tools::ServeCommand*>(line.selected) == nullptr);
    }
}

TEST_CASE("wrong usage of the program is one line and exit code 2") {
    const WrongUsage rows[] = {
        {{}, "gpunbd: no command; write for example gpunbd serve --size 1G"},
        {{"serv"}, "gpunbd: unknown command 'serv'; did you mean gpunbd serve?"},
        {{"start"}, "gpunbd: unknown command 'start'; did you mean gpunbd serve?"},
        {{"--size", "8G"},
         "gpunbd: --size is a flag of gpunbd serve; write gpunbd serve --size 8G"},
        {{"--verbose"},
         "gpunbd: --verbose needs --version: gpunbd --version --verbose; for a more detailed log: "
         "gpunbd serve --log-level debug"},
        {{"-v"}, "gpunbd: unknown flag '-v'; did you mean --version or --verbose?"},
        {{"--sise", "1G"}, "gpunbd: unknown flag '--sise'; did you mean gpunbd serve --size?"},
        {{"-p", "10809"}, "gpunbd: -p is a flag of gpunbd serve; write gpunbd serve -p 10809"},
        {{"--size", "1G", "serve"},
         "gpunbd serve: --size is a flag of gpunbd serve; write gpunbd serve --size 1G"},
        {{"/etc/x.yaml"},
         "gpunbd: unknown command '/etc/x.yaml'; did you mean gpunbd serve --config /etc/x.yaml?"},
        {{"1G"}, "gpunbd: unknown command '1G'; did you mean gpunbd serve --size 1G?"},
        {{"cuda:0"},
         "gpunbd: unknown command 'cuda:0'; did you mean gpunbd serve --device cuda:0?"},
        {{"version"}, "gpunbd: unknown command 'version'; did you mean gpunbd --version?"},
        {{"list"}, "gpunbd: unknown command 'list'; did you mean gpunbd devices?"},
        {{"validate"}, "gpunbd: unknown command 'validate'; did you mean gpunbd check?"},
        {{"bogus"},
         "gpunbd: unknown command 'bogus'; use serve, stop, keep, kept, reclaim, export, "
         "disconnect, attach, detach, ping, status, top, devices, check, doctor, tls-setup, "
         "completion or help"},
        {{""},
         "gpunbd: unknown command ''; use serve, stop, keep, kept, reclaim, export, disconnect, "
         "attach, detach, ping, status, top, devices, check, doctor, tls-setup, completion or "
         "help"},
        {{"--name", "two words"},
         "gpunbd: --name is a flag of gpunbd serve; write gpunbd serve --name 'two words'"},
        {{"--run",
          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
         "gpunbd: --run is a flag of gpunbd serve; write gpunbd serve --run ..."},
    };
    for (const WrongUsage& row : rows) check_message(row, row.message);
}

// The values of single keys: config/yaml_file_test.cpp.
TEST_CASE("wrong usage of a command is one line and exit code 2") {
    const WrongUsage rows[] = {
        {{"serve", "--sise", "8G"}, "unknown flag '--sise'; did you mean --size?"},
        {{"serve", "--ro"}, "unknown flag '--ro'; did you mean --read-only?"},
        {{"serve", "--bogus=1"}, "unknown flag '--bogus=1'"},
        {{"serve", "8G"}, "unexpected argument '8G'; did you mean --size 8G?"},
        {{"serve", "--device", "host", "cuda:0"},
         "unexpected argument 'cuda:0'; did you mean --device cuda:0?"},
        {{"serve", "--", "x"}, "unexpected argument 'x'; values follow flags, as in --size 8G"},
        {{"serve", "devices"},
         "unexpected argument 'devices'; one command at a time: gpunbd devices"},
        {{"serve", "--size"}, "--size needs its SIZE; write for example --size 8G"},
        {{"serve", "--size", "1G", "--size", "2G"}, "--size is given 2 times; give it once"},
        {{"serve", "--size", "1000"},
         "--size: '1000' is not a multiple of 512 bytes; use for example 512, or 1000M with a "
         "unit"},
        {{"serve", "--name", "\xff"},
         "--name: '\\xff' is not UTF-8, which NBD requires; write it in UTF-8"},
        {{"serve", "--device", "auto", "--device", "host"},
         "--device auto excludes other devices: gpunbd chooses the device; leave one of the two "
         "out"},
        {{"serve", "--device", "host", "--device", "host"},
         "--device host is given twice; give each device once"},
        {{"serve", "--device", "pci:0a:00.0/2", "--device", "pci:0000:0A:00.0/2"},
         "--device pci:0000:0A:00.0/2 is given twice; give each device once"},
        {{"serve", "--device", "host", "--force-pci"},
         "--force-pci is for memory of PCI cards (pci:), which others may use; add --device, for "
         "example --device pci:0000:01:00.0/2, or leave it out"},
        {{"serve", "--stripe-size", "4M"},
         "--stripe-size: 4M has no effect with --layout linear; use --layout stripe, or leave it "
         "out"},
        {{"serve", "--layout", "stripe", "--stripe-size", "3M"},
         "--stripe-size: 3M is not a multiple of --page-size (2M); use for example 4M"},
        {{"serve", "--reserve", "1G"},
         "--reserve requires --device; add it, for example --device cuda:0"},
        {{"serve", "-p", "http"},
         "--port: 'http' is not a whole number; write one from 1 to 65535, in decimal"},
        {{"serve", "-b", "::1", "-b", "0::1"},
         "--bind '0::1' is given twice; give each address once"},
        {{"serve", "-U", "a", "--unix", "a"}, "--unix 'a' is given twice; give each path once"},
        {{"serve", "--run", " "},
         "--run: the command is empty; write for example --run 'nbdinfo \"$uri\"'"},
        {{"serve", "--run", "x", "--background"},
         "--background and --run exclude each other: --background returns, and the other one ends "
         "the server; leave one of the two out"},
        {{"serve", "--exit-with-parent", "--background"},
         "--background and --exit-with-parent exclude each other: --background returns, and the "
         "other one ends the server; leave one of the two out"},
        {{"keep", "--", "serve", "--background"},
         "--background is a flag of keep here, which stays with the server; write gpunbd keep "
         "--background -- serve"},
        {{"serve", "--config", ""},
         "--config: the name of the file is empty; write for example --config "
         "/etc/gpunbd/gpunbd.yaml"},
        {{"help", "serv"},
         "'serv' is none of the commands serve, stop, keep, kept, reclaim, export, disconnect, "
         "attach, detach, ping, status, top, devices, check, doctor, tls-setup, completion or "
         "help; write for example gpunbd help serve"},
        {{"help", "serve", "keep"}, "takes one COMMAND at a time; leave 'keep' out"},
        {{"serve", "--size", "--device", "host"},
         "--size needs its SIZE; write for example --size 8G"},
        {{"serve", "--layout"},
         "--layout needs its KIND: linear or stripe; write for example --layout stripe"},
        {{"serve", "--readonly=yes"},
         "--readonly takes no argument; write --readonly alone, or leave it out"},
        {{"serve", "--layout", "stripe"},
         "--layout stripe needs two devices or more; repeat --device for each, or leave --layout "
         "out"},
        {{"serve", "--layout", "stripe", "--device", "auto"},
         "--layout stripe needs two devices or more; repeat --device for each, or leave --layout "
         "out"},
        {{"serve", "--tls", "off", "--tls-certificates", "/c"},
         "--tls off and --tls-certificates exclude each other; leave one of the two out"},
        {{"serve", "--config", "f", "--tls-psk", "/k", "--tls", "off"},
         "--tls off and --tls-psk exclude each other; leave one of the two out"},
        {{"serve", "--readonly", "yes"},
         "unexpected argument 'yes'; --read-only takes none: write it alone"},
        {{"serve", "-port", "1"}, "unknown flag '-port'; did you mean --port?"},
        {{"serve", "-size", "1G"}, "unknown flag '-size'; did you mean --size?"},
        {{"serve", "-r"}, "unknown flag '-r'; did you mean --reserve, --read-only or --run?"},
        {{"serve", "-x"}, "unknown flag '-x'"},
        {{"serve", "--listen", "::1"}, "unknown flag '--listen'; did you mean --bind?"},
        {{"serve", "--verbose"}, "unknown flag '--verbose'; did you mean --log-level?"},
        {{"serve", "--version"}, "--version is a flag of gpunbd itself; write gpunbd --version"},
        {{"serve", "--calibrate"},
         "--calibrate is a flag of gpunbd devices; write gpunbd devices --calibrate"},
        {{"devices", "--size", "1G"},
         "--size is a flag of gpunbd serve; write gpunbd serve --size 1G"},
        {{"check", "--config", "f"},
         "unknown flag '--config'; write gpunbd check FILE, without a flag"},
        {{"serve", "/etc/x.yaml"},
         "unexpected argument '/etc/x.yaml'; did you mean --config /etc/x.yaml?"},
        {{"serve", "x.yml"}, "unexpected argument 'x.yml'; did you mean --config x.yml?"},
        {{"serve", "/run/a.sock"},
         "unexpected argument '/run/a.sock'; did you mean --unix /run/a.sock?"},
        {{"serve", "10809"}, "unexpected argument '10809'; did you mean --port 10809?"},
        {{"serve", "4194304"}, "unexpected argument '4194304'; did you mean --size 4194304?"},
        {{"serve", "127.0.0.1"}, "unexpected argument '127.0.0.1'; did you mean --bind 127.0.0.1?"},
        {{"serve", "127.0.0.1:10809"},
         "unexpected argument '127.0.0.1:10809'; did you mean --bind 127.0.0.1 --port 10809?"},
        {{"serve", "size=1G"}, "unexpected argument 'size=1G'; did you mean --size=1G?"},
        {{"serve", "size"}, "unexpected argument 'size'; did you mean --size 8G?"},
        {{"serve", "readonly"}, "unexpected argument 'readonly'; did you mean --read-only?"},
        {{"serve", "stripe"}, "unexpected argument 'stripe'; did you mean --layout stripe?"},
        {{"serve", "--size", "1", "G"}, "unexpected argument 'G'; a size is one word: 1G"},
        {{"serve", "--run", "nbdinfo", "nbd://x"},
         "unexpected argument 'nbd://x'; quote the command of --run as one argument: --run "
         "'nbdinfo \"$uri\"'"},
        {{"serve", "--size", "all"}, "--size: 'all' is not a size; write 100% for all there is"},
        {{"serve", "-b", "fe80::1"},
         "--bind: 'fe80::1' is a link-local address, which needs its interface; write for example "
         "fe80::1%eth0"},
        {{"serve", "-b", "::1%lo"},
         "--bind: '::1%lo' is no link-local address, so it has no interface; write ::1"},
        {{"serve", "--log-level", "DEBUG"},
         "--log-level: 'DEBUG' is none of trace, debug, info, warn or error; did you mean debug?"},
        {{"devices", "serve"}, "unexpected argument 'serve'; gpunbd devices takes flags only"},
        {{"completion"}, "SHELL is missing; write for example gpunbd completion bash"},
        {{"completion", "tcsh"},
         "'tcsh' is none of the shells bash, zsh or fish; write for example gpunbd completion "
         "bash"},
        {{"completion", "bash", "zsh"}, "takes one SHELL at a time; leave 'zsh' out"},
        {{"serve", "--pidfile", ""},
         "--pidfile: the name of the file is empty; write for example --pidfile /run/gpunbd.pid"},
        {{"serve", ""}, "unexpected argument ''; values follow flags, as in --size 8G"},
        {{"devices", "--calibrated"}, "unknown flag '--calibrated'; did you mean --calibrate?"},
        {{"devices", "cuda:0"}, "unexpected argument 'cuda:0'; gpunbd devices takes flags only"},
        {{"check"}, "FILE is missing; write for example gpunbd check /etc/gpunbd/gpunbd.yaml"},
        {{"check", ""},
         "the FILE is empty; write for example gpunbd check /etc/gpunbd/gpunbd.yaml"},
        {{"check", "a", "--tls-name", "b"},
         "--tls-name requires --who; add it, for example --who 10.1.2.3"},
        {{"check", "a", "b"}, "takes one FILE at a time; leave 'b' out"},
        {{"check", "a", "--who", "::1", "--tls-name", "b", "--psk-user", "c"},
         "--psk-user and --tls-name exclude each other: a client presents a certificate or uses a "
         "shared key; leave one of the two out"},
        {{"doctor", "swap", "--config", "f"},
         "--config is for the topics remote and keep, not for swap; leave it out"},
        {{"export", "restore", "/f", "a", "--clone-of", "b"},
         "restore takes the contents from FILE and excludes the key clone_of; leave it out"},
        {{"export", "restore", "/f", "a", "--clone-per-client-of", "b"},
         "restore takes the contents from FILE and excludes the key clone_per_client.of; leave it "
         "out"},
        {{"export", "rm", "a"}, "unknown action 'rm'; did you mean gpunbd export remove?"},
        {{"export", "delete", "a"}, "unknown action 'delete'; did you mean gpunbd export remove?"},
        {{"export", "del"}, "unknown action 'del'; did you mean gpunbd export remove?"},
        {{"export", "ls"}, "unknown action 'ls'; did you mean gpunbd export list?"},
        {{"export", "new"}, "unknown action 'new'; did you mean gpunbd export create?"},
        {{"export", "add", "a", "--size", "1G"},
         "unknown action 'add'; did you mean gpunbd export create?"},
        {{"export", "creat"}, "unknown action 'creat'; did you mean gpunbd export create?"},
        {{"export", "list", "--force"}, "--force is for remove; leave it out"},
        {{"export", "remove", "a", "--device", "host"},
         "--device is for create and restore; leave it out"},
        {{"export", "remove", "a", "b", "a"}, "'a' is given twice; give each once"},
        {{"export", "restore", "/f", "a", "--restore", "/g"},
         "restore takes the contents from FILE and excludes the key restore; leave it out"},
    };
    for (const WrongUsage& row : rows) check(row);
}

TEST_CASE("tls-setup") {
    const CommandLine line = parse_line({"tls-setup", "d", "--host", "a.example", "--host", "::1",
                                         "--client", "b@c", "--psk", "e", "--days", "7"});
    using tools::TlsSetupCommand;
    const auto& settings = line.as<TlsSetupCommand>().settings;
    CHECK(settings.folder == "d");
    CHECK(settings.hosts == std::vector<std::string>{"a.example", "::1"});
    CHECK(settings.clients == std::vector<std::string>{"b@c"});
    CHECK(settings.users == std::vector<std::string>{"e"});
    CHECK(settings.days == 7);
    CHECK(parse_line({"tls-setup", "--psk", "e", "d"}).as<TlsSetupCommand>().settings.days == 730);

    const std::string label(63, 'l');
    const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'l');
    for (const std::string& host :
         std::vector<std::string>{"a", "*.a-b.c", "10.0.0.1", "1a.2", "_x.y", longest}) {
        CAPTURE(host);
        parse_line({"tls-setup", "d", "--host", host.c_str()}).as<TlsSetupCommand>();
    }
    for (const std::string& host : std::vector<std::string>{
             std::string(), ".", "a.", ".a", "-a", "a-", "a.*", "*", "*.", "1.2.3", "[::1]",
             "a,IP:1.2.3.4", "nbds://a", label + "l", longest + "l"}) {
        CAPTURE(host);
        CHECK(parse_line({"tls-setup", "d", "--host", host.c_str()}).exit_code == 2);
    }
    for (const std::string& name :
         std::vector<std::string>{".", "..", "-a", "a/b", "a b", std::string(65, 'a')}) {
        CAPTURE(name);
        CHECK(parse_line({"tls-setup", "d", "--client", name.c_str()}).exit_code == 2);
    }
    check({{"tls-setup", "--host", "a"},
           "DIR is missing; write for example gpunbd tls-setup /etc/gpunbd/tls --host "
           "storage.example.org"});
}

TEST_CASE("keep: reads its own flags, and passes the rest to serve") {
    using Words = std::vector<std::string>;
    const CommandLine kept_line =
        parse_line({"keep", "--max-restarts", "3", "--within", "9", "--max-descriptors", "7",
                    "--swap", "--", "serve", "--no-such-flag", "--within", "x", "--", "y"});
    const auto& kept = kept_line.as<tools::KeepCommand>().settings;
    CHECK(kept.max_restarts == 3);
    CHECK(kept.within == 9);
    CHECK(kept.max_descriptors == 7);
    CHECK(kept.swap);
    CHECK(kept.server == Words{"serve", "--no-such-flag", "--within", "x", "--", "y"});
    const CommandLine plain_line = parse_line({"keep", "serve", "--help"});
    const auto& plain = plain_line.as<tools::KeepCommand>().settings;
    CHECK(plain.max_restarts == 10);
    CHECK(plain.within == 60);
    CHECK(plain.max_descriptors == 16384);
    CHECK_FALSE(plain.swap);
    CHECK(plain.server == Words{"serve", "--help"});
    const WrongUsage rows[] = {
        {{"keep"}, "the command is missing; write for example gpunbd keep -- serve --size 1G"},
        {{"keep", "--"},
         "the command is missing; write for example gpunbd keep -- serve --size 1G"},
        {{"keep", "--", "check", "f"},
         "'check' cannot be kept, only serve; write for example gpunbd keep -- serve --size 1G"},
        {{"keep", "--within", "serve"},
         "--within needs its SECONDS; write for example --within 60"},
        {{"keep", "--", "serve", "--run=true"},
         "--run ends the server with its command, so there is nothing to keep; leave keep out"},
        {{"keep", "serve", "--run", "true"},
         "--run ends the server with its command, so there is nothing to keep; leave keep out"},
    };
    for (const WrongUsage& row : rows) check(row);
    for (const char* flag : {"--max-restarts", "--within", "--max-descriptors"}) {
        for (const char* value : {"0", "-1", "x", "1000000", ""}) {
            CAPTURE(flag);
            CAPTURE(value);
            CHECK(parse_line({"keep", flag, value, "serve"}).exit_code == 2);
        }
    }
}

TEST_CASE("attach and detach") {
    const CommandLine plain_line = parse_line({"attach", "nbd://h/", "/dev/nbd7"});
    using tools::AttachCommand;
    const auto& plain = plain_line.as<AttachCommand>().settings;
    CHECK(plain.uri == "nbd://h/");
    CHECK(plain.device == 7);
    CHECK(plain.connections == 1);
    CHECK_FALSE(plain.timeout);
    CHECK_FALSE(plain.dead_timeout);
    CHECK_FALSE(plain.block_size);
    CHECK_FALSE(plain.swap);
    CHECK_FALSE(plain.unit);
    CHECK_FALSE(plain.background);
    const CommandLine behind = parse_line({"attach", "nbd://h/", "/dev/nbd7", "--background"});
    CHECK(behind.as<AttachCommand>().settings.background);
    const CommandLine all_line =
        parse_line({"attach", "--connections", "4", "nbd://h/", "--timeout", "0", "/dev/nbd1048575",
                    "--dead-timeout", "31536000", "--block-size", "4K", "--swap", "--systemd"});
    const auto& all = all_line.as<AttachCommand>().settings;
    CHECK(all.device == 1048575);
    CHECK(all.connections == 4);
    CHECK(all.timeout == 0);
    CHECK(all.dead_timeout == 31536000);
    CHECK(all.block_size == 4096);
    CHECK(all.swap);
    CHECK(all.unit);
    CHECK_FALSE(parse_line({"attach", "--list"}).as<AttachCommand>().json);
    CHECK(parse_line({"attach", "--list", "--json"}).as<AttachCommand>().json);
    using tools::DetachCommand;
    CHECK_FALSE(parse_line({"detach", "/dev/nbd0"}).as<DetachCommand>().force);
    const CommandLine forced = parse_line({"detach", "/dev/nbd3", "--force"});
    CHECK(forced.as<DetachCommand>().device == 3);
    CHECK(forced.as<DetachCommand>().force);
    CHECK(parse_line({"detach", "--at-shutdown", "90"}).as<DetachCommand>().at_shutdown == 90);
    const std::string example =
        "; write for example gpunbd attach 'nbd+unix:///?socket=/run/gpunbd.sock' /dev/nbd0";
    const WrongUsage rows[] = {
        {{"attach"}, "URI and DEVICE are missing" + example},
        {{"attach", "nbd://h"}, "DEVICE is missing" + example},
        {{"attach", "/dev/nbd0"}, "URI is missing" + example},
        {{"attach", "nbd://h", "/dev/nbd0", "x"}, "takes one URI and one DEVICE; leave 'x' out"},
        {{"attach", "nbd://h", "nbd0"}, "'nbd0' is not an NBD device; write for example /dev/nbd0"},
        {{"attach", "nbd://h", "/dev/nbd0p1"},
         "'/dev/nbd0p1' is not an NBD device; write for example /dev/nbd0"},
        {{"attach", "nbd://h", "/dev/nbd1048576"},
         "'/dev/nbd1048576' is not an NBD device; write for example /dev/nbd0"},
        {{"attach", "nbd://h", "/dev/nbd0", "--json"}, "--json requires --list; add it"},
        {{"attach", "--list", "/dev/nbd0"}, "--list shows all devices; leave '/dev/nbd0' out"},
        {{"attach", "--list", "--swap"},
         "--list and --swap exclude each other: --list does not attach; leave one of the two out"},
        {{"attach", "--list", "--background"},
         "--list and --background exclude each other: --list does not attach; leave one of the two "
         "out"},
        {{"attach", "--systemd", "--background", "nbd://h", "/dev/nbd0"},
         "--systemd and --background exclude each other: --systemd does not attach; leave one of "
         "the two out"},
        {{"detach"}, "DEVICE is missing; write for example gpunbd detach /dev/nbd0"},
        {{"detach", "/dev/sda"}, "'/dev/sda' is not an NBD device; write for example /dev/nbd0"},
        {{"detach", "/dev/nbd0", "/dev/nbd1"}, "takes one DEVICE at a time; leave '/dev/nbd1' out"},
        {{"detach", "--at-shutdown", "90", "/dev/ublkb0"},
         "takes no DEVICE with --at-shutdown; leave '/dev/ublkb0' out"},
    };
    for (const WrongUsage& row : rows) check(row);
    const std::vector<std::pair<const char*, std::vector<const char*>>> values{
        {"--connections", {"0", "257", "x", "-1", ""}},
        {"--timeout", {"86401", "x", "-1", ""}},
        {"--dead-timeout", {"0", "31536001", "x", ""}},
        {"--block-size", {"256", "8K", "1000", "x", ""}}};
    for (const auto& [flag, wrong] : values) {
        for (const char* value : wrong) {
            CAPTURE(flag);
            CAPTURE(value);
            const CommandLine line = parse_line({"attach", "nbd://h", "/dev/nbd0", flag, value});
            CHECK(line.exit_code == 2);
            CHECK(contains(line.message, std::string(flag) + ": "));
        }
    }
}

TEST_CASE("status and top: select the server") {
    const CommandLine plain_line = parse_line({"status"});
    const auto& plain = plain_line.as<tools::StatusCommand>().settings;
    CHECK_FALSE(plain.server.socket);
    CHECK_FALSE(plain.server.url);
    CHECK_FALSE(plain.json);
    CHECK_FALSE(plain.watch);
    const CommandLine all_line =
        parse_line({"status", "--json", "--watch", "--socket", "/run/x.sock"});
    const auto& all = all_line.as<tools::StatusCommand>().settings;
    CHECK(all.server.socket == "/run/x.sock");
    CHECK(all.json);
    CHECK(all.watch);
    const CommandLine top_line = parse_line({"top", "--url", "http://h:9100/", "--token", "/t"});
    CHECK(top_line.as<tools::TopCommand>().server.token == "/t");
    const std::tuple<const char*, const char*, const char*> urls[] = {
        {"http://node-7", "node-7", "80"},
        {"http://127.0.0.1:1", "127.0.0.1", "1"},
        {"http://[::1]:9100/", "::1", "9100"},
        {"http://[::1]", "::1", "80"}};
    for (const auto& [text, host, port] : urls) {
        CAPTURE(text);
        const auto url = parse_line({"top", "--url", text}).as<tools::TopCommand>().server.url;
        REQUIRE(url);
        CHECK(url->host == host);
        CHECK(url->port == port);
    }
    // With the beginnings of the messages.
    const WrongUsage rows[] = {
        {{"status", "--socket", "/s", "--url", "http://h"},
         "--url and --socket exclude each other: both name the server; leave one of the two out"},
        {{"status", "--token", "/t"}, "--token requires --url; add it"},
        {{"top", "--url", "h:9100"},
         "--url: 'h:9100' is not a URL; write for example --url http://127.0.0.1:9809"},
        {{"top", "--url", "https://h"}, "--url: https is not supported; use --socket"},
        {{"top", "--url", "http://"}, "--url: "},
        {{"top", "--url", "http://h:0"}, "--url: '0' "},
        {{"top", "--url", "http://h:x"}, "--url: 'x' "},
        {{"top", "--url", "http://h:"}, "--url: "},
        {{"top", "--url", "http://h:1/path"}, "--url: '1/path' "},
        {{"top", "--url", "http://h/path"}, "--url: 'h/path' "},
        {{"top", "--url", "http://[::1"}, "--url: the [ has no matching ]"},
        {{"top", "--url", "http://[::1]x"}, "--url: 'x' follows the host"},
        {{"top", "--url", "http://a\r\nX: y"}, "--url: "},
        {{"top", "--url", "http://u@h"}, "--url: "},
        {{"status", "--socket", ""}, "--socket: "},
        {{"status", "--url", "http://h", "--token", ""}, "--token: "},
        {{"status", "/etc/gpunbd/gpunbd.yaml"}, ""},
        {{"top", "--watch"}, ""},
    };
    for (const WrongUsage& row : rows) {
        const CommandLine line = parse_line(row.arguments);
        CAPTURE(row.message);
        CAPTURE(line.message);
        CHECK(line.exit_code == 2);
        CHECK(line.message.starts_with("gpunbd " + std::string(row.arguments[0]) + ": " +
                                       row.message));
    }
}

TEST_CASE("--vsock") {
    const Options two = serve({"--vsock", "10809", "--vsock", "2:1"}).options;
    CHECK(two.vsock == std::vector<VsockListener>{{any_cid, 10809}, {2, 1}});
    CHECK(two.tcp.empty());
    CHECK(serve({"--vsock", "any:7", "-p", "1234"}).options.tcp == default_listeners(1234));
    const WrongUsage rows[] = {
        {{"serve", "--vsock", "0"},
         "--vsock: '0' is out of range; write a whole number from 1 to 4294967294"},
        {{"serve", "--vsock", "host:1"},
         "--vsock: 'host' is not a context id; write any, or the number of this machine: 2 of a "
         "host"},
        {{"serve", "--vsock", "2:"},
         "--vsock: '' is not a whole number; write one from 1 to 4294967294, in decimal"},
        {{"serve", "--vsock", "1", "--vsock", "any:1"},
         "--vsock 'any:1' is given twice; give each port once"},
        {{"serve", "--size", "1536", "--block-size", "1K"},
         "--size: 1536 is not a multiple of --block-size (1K); use for example 2K"},
    };
    for (const WrongUsage& row : rows) check(row);
}

TEST_CASE("--config names the flag that it excludes") {
    const std::vector<std::vector<const char*>> flags{
        {"--name", "a"},        {"--size", "1G"},        {"--device", "host"},
        {"--layout", "linear"}, {"--stripe-size", "2M"}, {"--provision", "thin"},
        {"--page-size", "2M"},  {"--reserve", "1G"},     {"--spill", "host=1G"},
        {"--force-pci"},        {"--read-only"},         {"--block-size", "4K"},
        {"--port", "1"},        {"--bind", "::1"},       {"--unix", "a"}};
    for (std::vector<const char*> flag : flags) {
        const std::string name = flag[0];
        flag.insert(flag.begin(), {"serve", "--config", "c"});
        check({flag, "--config and " + name +
                         " exclude each other: the file contains exports and listeners; leave one "
                         "of the two out"});
    }
}

TEST_CASE("a wrong device is refused with the one that may be meant") {
    const std::string any = "write " + device_descriptions();
    const std::pair<std::string, std::string> rows[] = {
        {"gpu", "write cuda:0"},
        {"cuda", "write cuda:0"},
        {"0", "write cuda:0"},
        {"gpu0", "write cuda:0"},
        {"cuda:00", "write cuda:0"},
        {"GPU:1", "write cuda:1"},
        {"/dev/nvidia2", "write cuda:2"},
        {"cpu", "write host"},
        {"cuda:0,cuda:1", "write one device at a time"},
        {"cuda:all", any},
        {"PCI:0000:0A:00.0/2", any},
        {"", any},
    };
    for (const auto& [id, remedy] : rows) {
        check({{"serve", "--device", id.c_str()},
               "--device: '" + id + "' is not a device; " + remedy +
                   " ('gpunbd devices' lists them)"});
    }
}

TEST_CASE("a wrong address is refused with the one that may be meant") {
    const std::pair<std::string, std::string> rows[] = {
        {"[::1]", "::1"},
        {"*", "0.0.0.0 for every IPv4 address"},
        {"0.0.0.0:10809", "0.0.0.0, and the port apart"},
        {"[::1]:10809", "::1, and the port apart"},
        {"localhost", "127.0.0.1 or ::1"},
        {"eth0", "for example 127.0.0.1, ::1, or 0.0.0.0 for every IPv4 address"},
        {"[fe80::1%eth0]", "fe80::1%eth0"},
    };
    for (const auto& [address, meant] : rows) {
        check({{"serve", "-b", address.c_str()},
               "--bind: '" + address + "' is not a numeric IPv4 or IPv6 address; write " + meant});
    }
}

TEST_CASE("--run names the listener that it excludes") {
    const std::pair<const char*, const char*> flags[] = {
        {"--port", "1"}, {"--bind", "::1"}, {"--unix", "a"}, {"--vsock", "1"}};
    for (const auto& [flag, value] : flags) {
        check({{"serve", "--run", "x", flag, value},
               std::string("--run and ") + flag +
                   " exclude each other: --run serves on a private Unix socket; leave one of the "
                   "two out"});
    }
}

TEST_CASE("a program without a name") {
    const char* const none[] = {nullptr};
    CHECK(parse(server::all_commands(), 0, none).exit_code == 2);
}

}  // namespace
}  // namespace gpunbd::config
