#include "config/help_text.hpp"

#include <fmt/format.h>

#include <string_view>

namespace gpunbd::config {
namespace {

constexpr std::size_t text_column = 25;
constexpr std::size_t width = 80;

// "head    text", the text in a column of its own.
std::string entry(const std::string& head, std::string_view text) {
    std::string out;
    std::string line = head;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        if (line.size() < text_column) {
            line.resize(text_column, ' ');
        } else if (line.size() + 1 + word.size() > width) {
            out += line + '\n';
            line.assign(text_column, ' ');
        } else {
            line += ' ';
        }
        line += word;
    }
    return out + line + '\n';
}

std::string entry(const Flag& flag) {
    std::string head = flag.letter.empty() ? "      " : fmt::format("  {}, ", flag.letter);
    head += flag.name;
    if (!flag.takes.empty()) head += fmt::format(" {}", flag.takes);
    return entry(head, fmt::format("{}{}", flag.brief, flag.more));
}

std::string title(const Command& command) {
    if (command.name.empty()) return fmt::format("gpunbd - {}\n", command.brief);
    std::string brief(command.brief);
    brief[0] = static_cast<char>(brief[0] - 'A' + 'a');
    return fmt::format("gpunbd {} - {}\n", command.name, brief);
}

}  // namespace

std::string help_text(const Command& command) {
    std::string out = fmt::format("{}\n{}\n{}", title(command), command.usage, command.about);
    if (command.name.empty()) {
        out += "\nCommands:\n";
        for (const Command& each : commands()) {
            std::string head = fmt::format("  {}", each.name);
            if (!each.takes.empty()) head += fmt::format(" {}", each.takes);
            out += entry(head, fmt::format("{}.", each.brief));
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
