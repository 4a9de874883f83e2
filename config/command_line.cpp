#include "config/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
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

namespace gpunbd::config {
namespace {

// Wrong usage, in words. It leaves parse_command_line() as a message and exit code 2.
struct Usage {
    std::string what;
};

// What was given to a command, as text, and with which rule it becomes a value.
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

auto integer_in(rules::IntegerRange range) {
    return [range](std::string_view text) { return rules::integer(text, range); };
}
auto bytes_in(rules::ByteRange range) {
    return [range](std::string_view text) { return rules::bytes(text, range); };
}

void refuse_beside_file(const GivenFlags& flags) {
    for (const FlagGroup& group : find_command("serve")->groups) {
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

ExportOptions read_export(const GivenFlags& flags) {
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
        auto id = GivenFlags::checked<std::string>("--device", device, rules::device_id);
        if (std::find(out.devices.begin(), out.devices.end(), id) != out.devices.end()) {
            throw Usage{fmt::format("--device {} is given twice; give each device once", id)};
        }
        if (out.devices.size() == rules::max_devices) {
            throw Usage{fmt::format("--device is given more than {} times", rules::max_devices)};
        }
        out.devices.push_back(std::move(id));
    }
    return out;
}

void read_reserve(const GivenFlags& flags, Options& out) {
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

void read_listeners(const GivenFlags& flags, Options& out) {
    for (std::string_view name : {"--port", "--bind", "--unix"}) {
        if (flags.given("--run") && flags.given(name)) {
            throw Usage{
                fmt::format("--run and {} exclude each other: --run serves on a private "
                            "Unix socket; leave one of the two out",
                            name)};
        }
    }
    if (flags.given("--run")) return;

    std::set<std::string> seen;
    for (const std::string& text : flags.all("--unix")) {
        auto path = GivenFlags::checked<std::string>("--unix", text, rules::unix_path);
        if (!seen.insert(path).second) {
            throw Usage{
                fmt::format("--unix {} is given twice; give each path once", in_quotes(path))};
        }
        out.unix_sockets.emplace_back().path = std::move(path);
    }
    if (flags.given("--unix") && !flags.given("--port") && !flags.given("--bind")) return;

    std::uint16_t port = TcpListener{}.port;
    flags.read("--port", port, rules::port);
    if (!flags.given("--bind")) {
        out.tcp = default_listeners(port);
        return;
    }
    for (const std::string& text : flags.all("--bind")) {
        TcpListener listener{
            .address = GivenFlags::checked<std::string>("--bind", text, rules::address),
            .port = port};
        if (!seen.insert(rules::tcp_identity(listener)).second) {
            throw Usage{
                fmt::format("--bind {} is given twice; give each address once", in_quotes(text))};
        }
        out.tcp.push_back(std::move(listener));
    }
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

std::string_view shell_of(const Command& command, const std::vector<std::string>& given) {
    const std::string& shell = only_argument(command, given);
    for (std::string_view known : command.words) {
        if (known == shell) return known;
    }
    throw Usage{fmt::format("{} is none of the shells {}; {}", in_quotes(shell),
                            rules::either(command.words), write_for_example(command))};
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
        std::max(options.pipeline.pinned, rules::min_pinned(options.pipeline));
}

CommandLine parse_command_line(int argc, const char* const* argv) {
    const Arguments line(argv + std::min(argc, 1), argv + argc);
    const Command& command = command_of(line);

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
        if (!each.takes.empty()) sub.add_option(std::string(each.takes), words);
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
        } else if (command.name == "devices") {
            out.devices = DevicesCommand{flags.at(command.name).on("--calibrate")};
        } else if (command.name == "check") {
            out.check = CheckCommand{only_argument(command, words)};
        } else {
            return finish(0, completion_script(shell_of(command, words)));
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
