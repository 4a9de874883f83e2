#include "config/command_line/parse.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "config/build_text.hpp"
#include "config/command_line/help_text.hpp"
#include "config/command_line/remedy.hpp"
#include "config/quote.hpp"

namespace gpunbd::config {
namespace {

std::string spelling_of(const Flag& flag) {
    std::string out(flag.name);
    for (std::string_view other : {flag.letter, flag.old}) {
        if (!other.empty()) out += fmt::format(",{}", other);
    }
    return out;
}

void add_flag(CLI::App& app, const Flag& flag) {
    if (flag.takes.empty()) {
        app.add_flag_function(spelling_of(flag), [&flag](std::int64_t) { flag.store(""); });
        return;
    }
    const auto once = [&flag](const std::vector<std::string>& values) {
        if (flag.repeats || values.size() == 1) return;
        throw UsageError(
            fmt::format("{} is given {} times; give it once", flag.name, values.size()));
    };
    app.add_option_function<std::vector<std::string>>(spelling_of(flag), once)
        ->allow_extra_args(false)  // each repetition has one argument
        ->check([&flag](const std::string& text) { return flag.store(text).value_or(""); });
}

void relate(CLI::App& app, const Flag& flag) {
    const auto option = [&](std::string_view name) { return app.get_option(std::string(name)); };
    if (!flag.needs.empty()) option(flag.name)->needs(option(flag.needs));
    for (std::string_view other : flag.excludes) option(flag.name)->excludes(option(other));
}

// "--token requires --url" -> "--token requires --url; add it"
std::string missing_flag(const Description& command, const CLI::RequiresError& error) {
    const std::string what = error.what();
    const Flag& missing = *find_flag(command, what.substr(what.rfind(' ') + 1));
    return fmt::format("{}; add it{}", what,
                       missing.takes.empty()
                           ? ""
                           : fmt::format(", for example {} {}", missing.name, missing.example));
}

// "--run excludes --background" -> "--background and --run exclude each other: ..."
std::string contradiction(const Description& command, const CLI::ExcludesError& error) {
    const std::string what = error.what();
    const Flag* flag = find_flag(command, what.substr(0, what.find(' ')));
    const Flag* other = find_flag(command, what.substr(what.rfind(' ') + 1));
    if (std::ranges::find(flag->excludes, other->name) == flag->excludes.end()) {
        std::swap(flag, other);
    }
    return fmt::format("{} and {} exclude each other{}{}; leave one of the two out", flag->name,
                       other->name, flag->why_not.empty() ? "" : ": ", flag->why_not);
}

CLI::App& add_command(CLI::App& app, const Command& command, std::vector<std::string>& arguments) {
    CLI::App& out = *app.add_subcommand(std::string(command.name));
    out.allow_extras();  // check_extras() reports them
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) {
            if (flag.name != "--help") add_flag(out, flag);
        }
    }
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) relate(out, flag);
    }
    if (!command.takes.empty()) out.add_option("arguments", arguments);
    return out;
}

// The arguments in the order that CLI11 expects, last one first.
Arguments for_parser(const Arguments& line) {
    Arguments out;
    for (const std::string& argument : line) {
        // CLI11 would read the next argument as the value of "--name=".
        if (argument.size() > 3 && argument.starts_with("--") && argument.back() == '=' &&
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

// Removes the command line of the wrapped command, which is not parsed here, from the line.
Arguments split_wrapped(Arguments& line, std::string_view wrapped) {
    const auto begin = std::find_if(line.begin(), line.end(), [&](const std::string& argument) {
        return argument == "--" || argument == wrapped;
    });
    const bool marked = begin != line.end() && *begin == "--";
    Arguments out(begin + (marked ? 1 : 0), line.end());
    line.erase(begin, line.end());
    return out;
}

void check_extras(const CLI::App& app, const Description& owner, const UsageAdvice& advice) {
    auto extras = app.remaining();
    // CLI11 includes the "--" that ends the flags.
    extras.erase(std::remove(extras.begin(), extras.end(), "--"), extras.end());
    if (extras.empty()) return;
    const std::string& first = extras.front();
    const bool is_flag = first.size() > 1 && first[0] == '-';
    throw UsageError(is_flag ? advice.on_unknown_flag(owner, first) : advice.on_stray_word(first));
}

class Parser {
 public:
    Parser(const Commands& commands, Arguments line)
        : commands_(commands), line_(std::move(line)), app_("", "gpunbd") {
        for (const std::string& argument : line_) {
            command_ = const_cast<Command*>(find_command(commands, argument));
            if (command_ != nullptr) break;
        }
        if (command_ != nullptr && !command_->wraps.empty()) {
            wrapped_ = split_wrapped(line_, command_->wraps);
        }
        app_.set_help_flag("-h,--help", "");
        app_.allow_extras();
        app_.require_subcommand(0, 1);
        app_.add_flag("--version", version_);
        app_.add_flag("--verbose", verbose_);
        for (const auto& each : commands) {
            CLI::App& added = add_command(app_, *each, arguments_);
            if (each.get() == command_) command_app_ = &added;
        }
    }

    Parsed parse() {
        try {
            return parsed();
        } catch (const UsageError& error) {
            return wrong_usage(error.what());
        } catch (const CLI::CallForHelp&) {
            return {.exit_code = 0,
                    .message = action() == nullptr ? help_text(description(), commands_)
                                                   : help_text(description(), *action())};
        } catch (const CLI::RequiresError& error) {
            return wrong_usage(missing_flag(description(), error));
        } catch (const CLI::ExcludesError& error) {
            return wrong_usage(contradiction(description(), error));
        } catch (const CLI::ParseError& error) {
            return wrong_usage(error.what());
        }
    }

 private:
    const Description& description() const {
        return command_ == nullptr ? program() : static_cast<const Description&>(*command_);
    }

    // The action on the command line; null: none.
    const Action* action() const {
        for (const std::string& each : line_) {
            if (each == "--") break;
            const Action* const found = find_action(description(), each);
            if (found != nullptr) return found;
        }
        return nullptr;
    }

    // Throws UsageError if a flag is not one of the action.
    void check_actions() const {
        if (command_->actions.empty()) return;
        const std::string_view given = arguments_.front();
        for (const FlagGroup& group : command_->groups) {
            for (const Flag& flag : group.flags) {
                const auto& of = flag.actions;
                if (of.empty() || std::ranges::find(of, given) != of.end()) continue;
                if (command_app_->get_option(std::string(flag.name))->count() == 0) continue;
                throw UsageError(
                    fmt::format("{} is for {}; leave it out", flag.name, fmt::join(of, " and ")));
            }
        }
    }

    Parsed parsed() {
        const UsageAdvice advice(commands_, description(), line_);
        if (const auto wrong = advice.on_misread_flag(); !wrong.empty()) throw UsageError(wrong);
        try {
            app_.parse(for_parser(line_));
        } catch (const CLI::CallForHelp&) {
            throw;
        } catch (const std::exception&) {
            // Of several problems, report an unknown flag or word rather than a value.
            if (wants_help()) throw CLI::CallForHelp();
            check_all_extras(advice);
            throw;
        }
        check_all_extras(advice);
        if (version_) return {.exit_code = 0, .message = verbose_ ? build_text() : version_text()};
        if (verbose_) {
            throw UsageError(
                "--verbose needs --version: gpunbd --version --verbose; for a more detailed log: "
                "gpunbd serve --log-level debug");
        }
        if (command_ == nullptr) {
            throw UsageError("no command; write for example gpunbd serve --size 1G");
        }
        command_->store_arguments(arguments_);
        command_->store_wrapped(wrapped_);
        check_actions();
        command_->check();
        return {.command = command_, .exit_code = {}, .message = {}};
    }

    bool wants_help() const {
        return app_.get_help_ptr()->count() > 0 ||
               (command_app_ != nullptr && command_app_->get_help_ptr()->count() > 0);
    }
    void check_all_extras(const UsageAdvice& advice) const {
        check_extras(app_, program(), advice);
        if (command_app_ != nullptr) check_extras(*command_app_, *command_, advice);
    }

    bool wants_json() const {
        const auto end = std::ranges::find(line_, "--");
        return find_flag(description(), "--json") != nullptr &&
               std::find(line_.begin(), end, "--json") != end;
    }

    Parsed wrong_usage(std::string what) const {
        std::replace(what.begin(), what.end(), '\n', ' ');
        if (wants_json()) return {.exit_code = 2, .message = what, .as_json = true};
        const std::string name =
            command_ == nullptr ? "gpunbd" : fmt::format("gpunbd {}", command_->name);
        return {.exit_code = 2,
                .message = fmt::format("{}: {} (see '{} --help')\n", name, what, name)};
    }

    const Commands& commands_;
    Arguments line_;
    Arguments wrapped_;
    Arguments arguments_;  // positional arguments of the command
    Command* command_ = nullptr;
    bool version_ = false;
    bool verbose_ = false;
    CLI::App app_;
    CLI::App* command_app_ = nullptr;
};

}  // namespace

Parsed parse(const Commands& commands, int argc, const char* const* argv) {
    return Parser(commands, Arguments(argv + std::min(argc, 1), argv + argc)).parse();
}

}  // namespace gpunbd::config
