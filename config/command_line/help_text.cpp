#include "config/command_line/help_text.hpp"

#include <fmt/format.h>

#include <string_view>

#include "config/wrapped_text.hpp"

namespace gpunbd::config {
namespace {

constexpr std::size_t text_column = 25;

std::string entry(const Flag& flag) {
    std::string head = flag.letter.empty() ? "      " : fmt::format("  {}, ", flag.letter);
    head += flag.name;
    if (!flag.takes.empty()) head += fmt::format(" {}", flag.takes);
    return wrapped(head, fmt::format("{}{}", flag.brief, flag.more), text_column);
}

std::string title(const Description& command) {
    if (command.name.empty()) return fmt::format("gpunbd - {}\n", command.brief);
    std::string brief(command.brief);
    brief[0] = static_cast<char>(brief[0] - 'A' + 'a');
    return fmt::format("gpunbd {} - {}\n", command.name, brief);
}

}  // namespace

std::string help_text(const Description& command, const Commands& all) {
    std::string out = fmt::format("{}\n{}\n{}", title(command), command.usage, command.about);
    if (command.name.empty()) {
        out += "\nCommands:\n";
        for (const auto& each : all) {
            if (each->hidden) continue;
            std::string head = fmt::format("  {}", each->name);
            if (!each->takes.empty()) head += fmt::format(" {}", each->takes);
            out += wrapped(head, fmt::format("{}.", each->brief), text_column);
        }
    }
    for (const FlagGroup& group : command.groups) {
        out += '\n';
        if (!group.title.empty()) out += fmt::format("{}:\n", group.title);
        for (const Flag& flag : group.flags) out += entry(flag);
    }
    return out + fmt::format("\nExamples:\n{}\n{}", command.examples, command.ending);
}

}  // namespace gpunbd::config
