#include "config/command_line.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "config/yaml_file.hpp"
#include "tests/config/helpers.hpp"

namespace gpunbd::config {
namespace {

CommandLine parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "gpunbd");
    return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

ServeCommand serve(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "serve");
    const CommandLine line = parse(std::move(arguments));
    INFO(line.message);
    REQUIRE_FALSE(line.exit_code.has_value());
    REQUIRE(line.serve.has_value());
    CHECK_FALSE(line.devices.has_value());
    CHECK_FALSE(line.check.has_value());
    return *line.serve;
}

const std::vector<TcpListener> loopback = default_listeners(10809);

TEST_CASE("serve with nothing else") {
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

TEST_CASE("serve with every flag") {
    const ServeCommand command = serve({"--name",
                                        "fast",
                                        "--size",
                                        "1.5GiB",
                                        "--device",
                                        "cuda:0",
                                        "--device=host",
                                        "--layout",
                                        "stripe",
                                        "--stripe-size",
                                        "8M",
                                        "--provision",
                                        "full",
                                        "--page-size",
                                        "4M",
                                        "--reserve",
                                        "2G",
                                        "--readonly",
                                        "-p",
                                        "1234",
                                        "-b",
                                        "0.0.0.0",
                                        "--bind",
                                        "::",
                                        "-U",
                                        "/run/a.sock",
                                        "--unix",
                                        "/run/b.sock",
                                        "--threads",
                                        "3",
                                        "--chunk-size",
                                        "512K",
                                        "--slots",
                                        "4",
                                        "--log-level",
                                        "debug",
                                        "--log-format",
                                        "json",
                                        "--trace"});
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
    CHECK(o.devices ==
          std::vector<DeviceOptions>{{"cuda:0", 2 * GiB, std::nullopt, std::nullopt, true},
                                     {"host", 2 * GiB, std::nullopt, std::nullopt, true}});
    CHECK(o.tcp == std::vector<TcpListener>{{"0.0.0.0", 1234}, {"::", 1234}});
    CHECK(o.unix_sockets ==
          std::vector<UnixListener>{{"/run/a.sock", 0600, ""}, {"/run/b.sock", 0600, ""}});
    CHECK(o.threads == 3);
    CHECK(o.pipeline == PipelineOptions{512 * KiB, 4, 16 * MiB});
    CHECK(o.log == LogOptions{"debug", LogFormat::json});
    CHECK(o.trace);

    // What the flags give is also what a file can say.
    const Loaded loaded = load_text(to_yaml(o), "f");
    CHECK(joined(loaded.problems) == "");
    CHECK(loaded.options == o);
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
        // Named, an address is a demand.
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

TEST_CASE("values that look odd and are not") {
    CHECK(serve({"--name", ""}).options.exports[0].name == "");
    const ServeCommand empty = serve({"--name=", "--size", "50%"});
    CHECK(empty.options.exports[0].name == "");
    CHECK(empty.options.exports[0].size == Size{.percent = 50});
    CHECK(serve({"--name", "a b=c"}).options.exports[0].name == "a b=c");
    CHECK(serve({"--run", "[ -e \"$unixsocket\" ]"}).run == "[ -e \"$unixsocket\" ]");
    CHECK(serve({"--device", "auto"}).options.exports[0].devices.empty());
    CHECK(serve({"--chunk-size", "16M"}).options.pipeline.pinned == 64 * MiB);
}

TEST_CASE("serve with a file") {
    const ServeCommand plain = serve({"--config", "/etc/gpunbd.yaml"});
    CHECK(plain.config_file == "/etc/gpunbd.yaml");
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

TEST_CASE("devices and check") {
    const CommandLine plain = parse({"devices"});
    REQUIRE(plain.devices.has_value());
    CHECK_FALSE(plain.devices->calibrate);
    CHECK(parse({"devices", "--calibrate"}).devices->calibrate);
    CHECK(parse({"check", "a.yaml"}).check->file == "a.yaml");
    CHECK(parse({"check", "serve"}).check->file == "serve");
    CHECK(parse({"check", "--", "-a"}).check->file == "-a");
}

TEST_CASE("help and version go to standard output") {
    struct Row {
        std::vector<const char*> arguments;
        const char* start;
    };
    const Row rows[] = {
        {{"--help"}, "gpunbd - "},
        {{"-h"}, "gpunbd - "},
        {{"serve", "--help"}, "gpunbd serve - "},
        {{"--help", "serve"}, "gpunbd serve - "},
        {{"serve", "--size", "8G", "-h"}, "gpunbd serve - "},
        {{"devices", "--help"}, "gpunbd devices - "},
        {{"check", "--help"}, "gpunbd check - "},
        {{"--version"}, "gpunbd "},
    };
    for (const Row& row : rows) {
        CAPTURE(row.start);
        const CommandLine line = parse(row.arguments);
        CHECK(line.exit_code == 0);
        CHECK(line.message.find(row.start) == 0);
        CHECK(line.message.back() == '\n');
        CHECK_FALSE(line.serve.has_value());
        CHECK_FALSE(line.devices.has_value());
        CHECK_FALSE(line.check.has_value());
    }
}

TEST_CASE("wrong usage is one line and exit code 2") {
    struct Row {
        std::vector<const char*> arguments;
        const char* message;  // less "(see ...)"
    };
    const Row rows[] = {
        {{}, "gpunbd: no command; use serve, devices or check"},
        {{"serv"}, "gpunbd: unknown command 'serv'; did you mean serve?"},
        {{"start"}, "gpunbd: unknown command 'start'; use serve, devices or check"},
        {{"--size", "8G"}, "gpunbd: unknown flag '--size'"},
        {{"serve", "--sise", "8G"}, "gpunbd serve: unknown flag '--sise'; did you mean --size?"},
        {{"serve", "--read-only"},
         "gpunbd serve: unknown flag '--read-only'; did you mean --readonly?"},
        {{"serve", "--bogus=1"}, "gpunbd serve: unknown flag '--bogus=1'"},
        {{"serve", "8G"}, "gpunbd serve: unexpected argument '8G'"},
        {{"serve", "--device", "host", "cuda:0"}, "gpunbd serve: unexpected argument 'cuda:0'"},
        {{"serve", "--", "x"}, "gpunbd serve: unexpected argument 'x'"},
        {{"serve", "devices"}, "gpunbd serve: unexpected argument 'devices'"},
        {{"serve", "--size"}, "gpunbd serve: --size: 1 required argument missing"},
        {{"serve", "--size", "1G", "--size", "2G"},
         "gpunbd serve: --size is given 2 times; give it once"},
        {{"serve", "--size", "8GB"},
         "gpunbd serve: --size: '8GB' has a decimal unit, and sizes are binary; write 8G or 8GiB"},
        {{"serve", "--size", "1000"},
         "gpunbd serve: --size: '1000' is not a multiple of 512 bytes; use for example 512"},
        {{"serve", "--size="}, "gpunbd serve: --size: the size is empty; write for example 8G"},
        {{"serve", "--name", "a\nb"},
         "gpunbd serve: --name: 'a\\nb' holds a control character; use printable text"},
        {{"serve", "--name", "\xff"},
         "gpunbd serve: --name: '\\xff' is not UTF-8, which NBD asks for"},
        {{"serve", "--device", "gpu"},
         "gpunbd serve: --device: 'gpu' is not a device; write host, or cuda:N with the GPU's "
         "number, for example cuda:0 ('gpunbd devices' lists them)"},
        {{"serve", "--device", "auto", "--device", "host"},
         "gpunbd serve: --device auto stands alone: it leaves the choice to gpunbd"},
        {{"serve", "--device", "host", "--device", "host"},
         "gpunbd serve: --device host is given twice; give each device once"},
        {{"serve", "--layout", "mirror"},
         "gpunbd serve: --layout: 'mirror' is none of linear or stripe"},
        {{"serve", "--stripe-size", "4M"},
         "gpunbd serve: --stripe-size: 4M has no effect with --layout linear; use --layout stripe, "
         "or leave it out"},
        {{"serve", "--layout", "stripe", "--stripe-size", "3M"},
         "gpunbd serve: --stripe-size: 3M is not a multiple of --page-size (2M); use for example "
         "4M"},
        {{"serve", "--provision", "thick"},
         "gpunbd serve: --provision: 'thick' is none of thin or full"},
        {{"serve", "--page-size", "2000"},
         "gpunbd serve: --page-size: '2000' is out of range; write 64K to 64M"},
        {{"serve", "--reserve", "1G"},
         "gpunbd serve: --reserve needs to know of which device; add --device, for example "
         "--device cuda:0"},
        {{"serve", "-p", "0"},
         "gpunbd serve: --port: '0' is out of range; write a whole number from 1 to 65535"},
        {{"serve", "-p", "http"},
         "gpunbd serve: --port: 'http' is not a whole number; write one from 1 to 65535, in "
         "decimal"},
        {{"serve", "-b", "localhost"},
         "gpunbd serve: --bind: 'localhost' is not a numeric IPv4 or IPv6 address; write for "
         "example 127.0.0.1, ::1, or 0.0.0.0 for every interface"},
        {{"serve", "-b", "::1", "-b", "0::1"},
         "gpunbd serve: --bind '0::1' is given twice; give each address once"},
        {{"serve", "-U", ""},
         "gpunbd serve: --unix: the path is empty; write for example /run/gpunbd.sock"},
        {{"serve", "-U", "a", "--unix", "a"},
         "gpunbd serve: --unix 'a' is given twice; give each path once"},
        {{"serve", "--run", " "},
         "gpunbd serve: --run: the command is empty; write for example --run 'nbdinfo \"$uri\"'"},
        {{"serve", "--run", "x", "-p", "1"},
         "gpunbd serve: --run and --port exclude each other: --run serves on a private Unix "
         "socket"},
        {{"serve", "--run", "x", "-b", "::1"},
         "gpunbd serve: --run and --bind exclude each other: --run serves on a private Unix "
         "socket"},
        {{"serve", "--run", "x", "-U", "a"},
         "gpunbd serve: --run and --unix exclude each other: --run serves on a private Unix "
         "socket"},
        {{"serve", "--config", ""}, "gpunbd serve: --config: the name of the file is empty"},
        {{"serve", "--threads", "-1"},
         "gpunbd serve: --threads: '-1' is out of range; write a whole number from 0 to 1024"},
        {{"serve", "--chunk-size", "1000K"},
         "gpunbd serve: --chunk-size: '1000K' is not a power of two; use for example 512K"},
        {{"serve", "--slots", "9"},
         "gpunbd serve: --slots: '9' is out of range; write a whole number from 1 to 8"},
        {{"serve", "--log-level", "loud"},
         "gpunbd serve: --log-level: 'loud' is none of trace, debug, info, warn or error"},
        {{"serve", "--log-format", "xml"},
         "gpunbd serve: --log-format: 'xml' is none of text or json"},
        {{"devices", "--calibrated"},
         "gpunbd devices: unknown flag '--calibrated'; did you mean --calibrate?"},
        {{"devices", "cuda:0"}, "gpunbd devices: unexpected argument 'cuda:0'"},
        {{"check"}, "gpunbd check: FILE is missing; write for example gpunbd.yaml"},
        {{"check", ""}, "gpunbd check: the name of the file is empty"},
        {{"check", "a", "b"}, "gpunbd check: takes one FILE at a time"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.message);
        const CommandLine line = parse(row.arguments);
        const std::string message(row.message);
        const std::string command = message.substr(0, message.find(':'));
        CHECK(line.exit_code == 2);
        std::string expected = message;
        expected.append(" (see '").append(command).append(" --help')\n");
        CHECK(line.message == expected);
        CHECK_FALSE(line.serve.has_value());
        CHECK_FALSE(line.devices.has_value());
        CHECK_FALSE(line.check.has_value());
    }
}

TEST_CASE("--config names the flag that it excludes") {
    const std::vector<std::vector<const char*>> flags{
        {"--name", "a"},        {"--size", "1G"},        {"--device", "host"},
        {"--layout", "linear"}, {"--stripe-size", "2M"}, {"--provision", "thin"},
        {"--page-size", "2M"},  {"--reserve", "1G"},     {"--readonly"},
        {"--port", "1"},        {"--bind", "::1"},       {"--unix", "a"}};
    for (std::vector<const char*> flag : flags) {
        const std::string name = flag[0];
        CAPTURE(name);
        flag.insert(flag.begin(), {"serve", "--config", "c"});
        const CommandLine line = parse(flag);
        CHECK(line.exit_code == 2);
        std::string expected = "gpunbd serve: --config and ";
        expected.append(name).append(
            " exclude each other: exports and listeners stand in the file (see 'gpunbd serve "
            "--help')\n");
        CHECK(line.message == expected);
    }
}

TEST_CASE("a program without even a name") {
    const char* const none[] = {nullptr};
    CHECK(parse_command_line(0, none).exit_code == 2);
}

}  // namespace
}  // namespace gpunbd::config
