#include "config/command_line/command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/devices/device_drivers.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"

namespace gpunbd::config {

Command::Command(Description description) : Description(std::move(description)) {
    groups.back().flags.push_back(
        {.name = "--help", .letter = "-h", .brief = "Show this help", .more = "."});
}

std::string Command::write_for_example() const {
    return fmt::format("write for example gpunbd {} {}", name, example);
}

void Command::store_arguments(const std::vector<std::string>& arguments) {
    if (arguments.empty() && (optional || takes.empty())) return;
    if (arguments.empty()) {
        throw UsageError(fmt::format("{} is missing; {}", takes, write_for_example()));
    }
    if (arguments.size() > 1) {
        throw UsageError(
            fmt::format("takes one {} at a time; leave {} out", takes, in_quotes(arguments[1])));
    }
    if (arguments[0].empty()) {
        throw UsageError(fmt::format("the {} is empty; {}", takes, write_for_example()));
    }
    if (!words.empty() && std::ranges::find(words, arguments[0]) == words.end()) {
        throw UsageError(fmt::format("{} is none of the {} {}; {}", in_quotes(arguments[0]), kind,
                                     rules::either(words), write_for_example()));
    }
    if (const auto wrong = store(arguments[0])) throw UsageError(*wrong);
}

const Command* find_command(const Commands& all, std::string_view name) {
    const auto found =
        std::ranges::find_if(all, [name](const auto& each) { return each->name == name; });
    return found == all.end() ? nullptr : found->get();
}

const Flag* find_flag(const Description& command, std::string_view name) {
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) {
            for (std::string_view each : {flag.name, flag.letter, flag.old}) {
                if (!each.empty() && each == name) return &flag;
            }
        }
    }
    return nullptr;
}

const Action* find_action(const Description& command, std::string_view name) {
    const auto found = std::ranges::find(command.actions, name, &Action::name);
    return found == command.actions.end() ? nullptr : &*found;
}

bool has_word(std::string_view list, std::string_view word) {
    return fmt::format(" {} ", list).find(fmt::format(" {} ", word)) != std::string::npos;
}

std::string on_unknown_action(const Description& command, std::string_view word) {
    const std::string unknown = fmt::format("unknown action {}", in_quotes(word));
    const auto meant = [&](std::string_view action) {
        return fmt::format("{}; did you mean gpunbd {} {}?", unknown, command.name, action);
    };
    std::vector<std::string_view> names;
    for (const Action& each : command.actions) {
        if (!word.empty() && has_word(each.called, word)) return meant(each.name);
        names.push_back(each.name);
    }
    const auto near = rules::nearest(word, names);
    return near.empty() ? fmt::format("{}; use {}", unknown, rules::either(names)) : meant(near);
}

const Description& program() {
    static const Description description{
        .name = "",
        .brief = "an NBD server that exports GPU memory as block devices",
        .usage = "Usage: gpunbd COMMAND [FLAGS]\n",
        .about = "Nothing is persistent: all contents are lost when the server ends.\n",
        .groups = {{"Flags",
                    {{.name = "--help",
                      .letter = "-h",
                      .brief = "Show this help",
                      .more = ", or the help of the command before it."},
                     {.name = "--version", .brief = "Show the version", .more = "."},
                     {.name = "--verbose",
                      .brief = "With --version: also show the build",
                      .more = ", the libraries, and the paths of the installed files."}}}},
        .examples =
            fmt::format(R"(  gpunbd serve                      the first GPU's memory, on port 10809
  gpunbd serve --size 8G --device {}
  gpunbd serve --config /etc/gpunbd/gpunbd.yaml
  gpunbd check /etc/gpunbd/gpunbd.yaml
)",
                        example_device()),
        .ending = R"(Exit codes: 0 done; 1 failed at run time; 2 wrong usage or configuration.
See also: gpunbd(8), gpunbd.yaml(5)
)"};
    return description;
}

}  // namespace gpunbd::config
