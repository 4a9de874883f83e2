#include "config/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "config/help_text.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"

namespace gpunbd::config {
namespace {

// Wrong usage, in words. It leaves parse_command_line() as a message and exit code 2.
struct Usage {
    std::string what;
};

struct Flag {
    std::string_view spelling;  // as CLI11 takes it
    std::string_view name;      // as messages call it
    bool with_file;             // may stand beside --config
};
constexpr std::array value_flags{
    Flag{"--name", "--name", false},
    Flag{"--size", "--size", false},
    Flag{"--device", "--device", false},
    Flag{"--layout", "--layout", false},
    Flag{"--stripe-size", "--stripe-size", false},
    Flag{"--provision", "--provision", false},
    Flag{"--page-size", "--page-size", false},
    Flag{"--reserve", "--reserve", false},
    Flag{"-p,--port", "--port", false},
    Flag{"-b,--bind", "--bind", false},
    Flag{"-U,--unix", "--unix", false},
    Flag{"--config", "--config", true},
    Flag{"--run", "--run", true},
    Flag{"--threads", "--threads", true},
    Flag{"--chunk-size", "--chunk-size", true},
    Flag{"--slots", "--slots", true},
    Flag{"--log-level", "--log-level", true},
    Flag{"--log-format", "--log-format", true},
};
constexpr std::array switch_flags{
    Flag{"--readonly", "--readonly", false},
    Flag{"--trace", "--trace", true},
};
constexpr std::array<std::string_view, 3> commands{"serve", "devices", "check"};

// What was given to `gpunbd serve`, as text, and with which rule it becomes a value.
class ServeFlags {
 public:
    explicit ServeFlags(CLI::App& app) {
        for (const Flag& flag : value_flags) {
            // Every repetition is kept, so that text() can say what is wrong with it; each takes
            // one argument.
            app.add_option(std::string(flag.spelling), values_[flag.name])
                ->type_name("argument")
                ->allow_extra_args(false);
        }
        for (const Flag& flag : switch_flags) {
            app.add_flag(std::string(flag.spelling), switches_[flag.name]);
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

    template <class Target, class Rule>
    bool read(std::string_view name, Target& target, Rule rule) const {
        const std::string* value = text(name);
        if (value != nullptr) target = checked<Target>(name, *value, rule);
        return value != nullptr;
    }
    template <class Target, class Rule>
    static Target checked(std::string_view name, std::string_view text, Rule rule) {
        auto result = rule(text);
        if (auto* wrong = std::get_if<rules::Wrong>(&result)) {
            throw Usage{fmt::format("{}: {}", name, wrong->what)};
        }
        return Target(static_cast<typename Plain<Target>::type>(std::get<0>(std::move(result))));
    }

 private:
    template <class T>
    struct Plain {
        using type = T;
    };
    template <class T>
    struct Plain<std::optional<T>> {
        using type = T;
    };

    std::map<std::string_view, std::vector<std::string>> values_;
    std::map<std::string_view, bool> switches_;
};

auto integer_in(rules::IntegerRange range) {
    return [range](std::string_view text) { return rules::integer(text, range); };
}
auto bytes_in(rules::ByteRange range) {
    return [range](std::string_view text) { return rules::bytes(text, range); };
}

void refuse_together(const ServeFlags& flags, std::string_view with, std::string_view why) {
    const auto refuse = [&](const Flag& flag) {
        if (!flags.given(flag.name)) return;
        throw Usage{fmt::format("{} and {} exclude each other: {}", with, flag.name, why)};
    };
    for (const Flag& flag : value_flags) {
        if (!flag.with_file) refuse(flag);
    }
    for (const Flag& flag : switch_flags) {
        if (!flag.with_file) refuse(flag);
    }
}

ExportOptions read_export(const ServeFlags& flags) {
    ExportOptions out;
    flags.read("--name", out.name, rules::export_name);
    flags.read("--size", out.size, rules::export_size);
    flags.read("--layout", out.layout, rules::layout);
    flags.read("--stripe-size", out.stripe_size, bytes_in(rules::stripe_size));
    flags.read("--provision", out.provision, rules::provision);
    flags.read("--page-size", out.page_size, bytes_in(rules::page_size));
    out.read_only = flags.on("--readonly");
    if (const auto misfit = rules::stripe_misfit(out, "--layout", "--page-size")) {
        throw Usage{"--stripe-size: " + *misfit};
    }

    const auto& devices = flags.all("--device");
    if (devices.size() == 1 && devices[0] == "auto") return out;
    for (const std::string& device : devices) {
        if (device == "auto") {
            throw Usage{"--device auto stands alone: it leaves the choice to gpunbd"};
        }
        auto id = ServeFlags::checked<std::string>("--device", device, rules::device_id);
        if (std::find(out.devices.begin(), out.devices.end(), id) != out.devices.end()) {
            throw Usage{fmt::format("--device {} is given twice; give each device once", id)};
        }
        if (out.devices.size() == rules::most_devices) {
            throw Usage{fmt::format("--device is given more than {} times", rules::most_devices)};
        }
        out.devices.push_back(std::move(id));
    }
    return out;
}

void read_reserve(const ServeFlags& flags, Options& out) {
    std::uint64_t reserve = 0;
    if (!flags.read("--reserve", reserve, bytes_in(rules::reserve))) return;
    if (out.exports[0].devices.empty()) {
        throw Usage{
            "--reserve needs to know of which device; add --device, for example --device "
            "cuda:0"};
    }
    for (const std::string& id : out.exports[0].devices) {
        DeviceOptions& device = out.devices.emplace_back();
        device.id = id;
        device.reserve = reserve;
    }
}

void read_listeners(const ServeFlags& flags, Options& out) {
    for (std::string_view name : {"--port", "--bind", "--unix"}) {
        if (flags.given("--run") && flags.given(name)) {
            throw Usage{
                fmt::format("--run and {} exclude each other: --run serves on a private "
                            "Unix socket",
                            name)};
        }
    }
    if (flags.given("--run")) return;

    std::set<std::string> seen;
    for (const std::string& text : flags.all("--unix")) {
        auto path = ServeFlags::checked<std::string>("--unix", text, rules::unix_path);
        if (!seen.insert(path).second) {
            throw Usage{
                fmt::format("--unix {} is given twice; give each path once", in_quotes(path))};
        }
        out.unix_sockets.emplace_back().path = std::move(path);
    }
    if (flags.given("--unix") && !flags.given("--port") && !flags.given("--bind")) return;

    std::uint16_t port = TcpListener{}.port;
    flags.read("--port", port, integer_in(rules::port));
    if (!flags.given("--bind")) {
        out.tcp = default_listeners(port);
        return;
    }
    for (const std::string& text : flags.all("--bind")) {
        TcpListener listener{
            .address = ServeFlags::checked<std::string>("--bind", text, rules::address),
            .port = port};
        if (!seen.insert(rules::tcp_identity(listener)).second) {
            throw Usage{
                fmt::format("--bind {} is given twice; give each address once", in_quotes(text))};
        }
        out.tcp.push_back(std::move(listener));
    }
}

ServeCommand read_serve(const ServeFlags& flags) {
    ServeCommand out;
    if (const auto* file = flags.text("--config")) {
        if (file->empty()) throw Usage{"--config: the name of the file is empty"};
        refuse_together(flags, "--config", "exports and listeners stand in the file");
        out.config_file = *file;
    }
    if (const auto* command = flags.text("--run")) {
        if (command->find_first_not_of(" \t\n") == std::string::npos) {
            throw Usage{"--run: the command is empty; write for example --run 'nbdinfo \"$uri\"'"};
        }
        out.run = *command;
    }
    if (!out.config_file) {
        out.options.exports.push_back(read_export(flags));
        read_reserve(flags, out.options);
        read_listeners(flags, out.options);
    }
    flags.read("--threads", out.overrides.threads, integer_in(rules::threads));
    flags.read("--chunk-size", out.overrides.chunk_size, bytes_in(rules::chunk_size));
    flags.read("--slots", out.overrides.slots, integer_in(rules::slots));
    flags.read("--log-level", out.overrides.log_level, rules::log_level);
    flags.read("--log-format", out.overrides.log_format, rules::log_format);
    out.overrides.trace = flags.on("--trace");
    out.overrides.apply_to(out.options);
    return out;
}

// The arguments in the order that CLI11 wants, last one first.
std::vector<std::string> arguments(int argc, const char* const* argv) {
    std::vector<std::string> out;
    for (int i = 1; i < argc; ++i) {
        std::string argument = argv[i];
        // CLI11 would take the next argument for the value of "--name=".
        if (argument.size() > 3 && argument.substr(0, 2) == "--" && argument.back() == '=' &&
            argument.find('=') + 1 == argument.size()) {
            argument.pop_back();
            out.push_back(std::move(argument));
            out.emplace_back();
        } else {
            out.push_back(std::move(argument));
        }
    }
    std::reverse(out.begin(), out.end());
    return out;
}

std::vector<std::string> flag_names(const CLI::App& app) {
    std::vector<std::string> out;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
    }
    return out;
}

// Refuses what `app` did not expect.
void refuse_extras(const CLI::App& app, bool is_command) {
    auto extras = app.remaining();
    // CLI11 leaves the mark that ends the flags among them.
    extras.erase(std::remove(extras.begin(), extras.end(), "--"), extras.end());
    if (extras.empty()) return;
    const std::string& first = extras.front();
    if (first.size() > 1 && first[0] == '-') {
        const auto names = flag_names(app);
        const auto meant = rules::nearest(first.substr(0, first.find('=')), names);
        throw Usage{fmt::format("unknown flag {}{}", in_quotes(first),
                                meant.empty() ? "" : fmt::format("; did you mean {}?", meant))};
    }
    if (is_command) throw Usage{fmt::format("unexpected argument {}", in_quotes(first))};
    const auto meant = rules::nearest(first, commands);
    throw Usage{fmt::format(
        "unknown command {}; {}", in_quotes(first),
        meant.empty() ? "use serve, devices or check" : fmt::format("did you mean {}?", meant))};
}

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

}  // namespace

void Overrides::apply_to(Options& options) const {
    if (threads) options.threads = *threads;
    if (chunk_size) options.pipeline.chunk_size = chunk_size;
    if (slots) options.pipeline.slots = *slots;
    if (log_level) options.log.level = *log_level;
    if (log_format) options.log.format = *log_format;
    if (trace) options.trace = true;
    options.pipeline.pinned =
        std::max(options.pipeline.pinned, rules::least_pinned(options.pipeline));
}

CommandLine parse_command_line(int argc, const char* const* argv) {
    CLI::App app("", "gpunbd");
    app.set_help_flag("-h,--help", "");
    app.set_version_flag("--version", "");
    app.allow_extras();
    app.require_subcommand(0, 1);

    CLI::App& serve = *app.add_subcommand("serve");
    CLI::App& devices = *app.add_subcommand("devices");
    CLI::App& check = *app.add_subcommand("check");
    for (CLI::App* command : {&serve, &devices, &check}) command->allow_extras();

    const ServeFlags serve_flags(serve);
    bool calibrate = false;
    devices.add_flag("--calibrate", calibrate);
    std::vector<std::string> files;
    check.add_option("FILE", files);

    const auto finish = [](int exit_code, std::string message) {
        CommandLine out;
        out.exit_code = exit_code;
        out.message = std::move(message);
        return out;
    };
    const auto command_name = [&]() -> std::string {
        const auto parsed = app.get_subcommands();
        return parsed.empty() ? "gpunbd" : "gpunbd " + parsed.front()->get_name();
    };
    const auto wrong_usage = [&](const std::string& what) {
        return finish(2, fmt::format("{}: {} (see '{} --help')\n", command_name(), one_line(what),
                                     command_name()));
    };

    try {
        app.parse(arguments(argc, argv));
        refuse_extras(app, !app.get_subcommands().empty());
        CommandLine out;
        if (serve.parsed()) {
            refuse_extras(serve, true);
            out.serve = read_serve(serve_flags);
        } else if (devices.parsed()) {
            refuse_extras(devices, true);
            out.devices = DevicesCommand{calibrate};
        } else if (check.parsed()) {
            refuse_extras(check, true);
            if (files.empty()) throw Usage{"FILE is missing; write for example gpunbd.yaml"};
            if (files.size() > 1) throw Usage{"takes one FILE at a time"};
            if (files[0].empty()) throw Usage{"the name of the file is empty"};
            out.check = CheckCommand{files[0]};
        } else {
            throw Usage{"no command; use serve, devices or check"};
        }
        return out;
    } catch (const Usage& usage) {
        return wrong_usage(usage.what);
    } catch (const CLI::CallForHelp&) {
        const std::string_view text = serve.parsed()     ? help_text::serve
                                      : devices.parsed() ? help_text::devices
                                      : check.parsed()   ? help_text::check
                                                         : help_text::program;
        return finish(0, std::string(text));
    } catch (const CLI::CallForVersion&) {
        return finish(0, "gpunbd " GPUNBD_VERSION "\n");
    } catch (const CLI::ParseError& error) {
        return wrong_usage(error.what());
    }
}

}  // namespace gpunbd::config
