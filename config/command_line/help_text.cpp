#include "config/command_line/help_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/text_layout.hpp"

namespace gpunbd::config {
namespace {

constexpr std::size_t text_column = 25;

std::string entry(const Flag& flag) {
    std::string head = flag.letter.empty() ? "      " : fmt::format("  {}, ", flag.letter);
    head += flag.name;
    if (!flag.takes.empty()) head += fmt::format(" {}", flag.takes);
    return wrapped(head, fmt::format("{}{}", flag.brief, flag.more), text_column);
}

std::string title(const std::string& name, std::string_view brief) {
    std::string small(brief);
    if (small[0] >= 'A' && small[0] <= 'Z') small[0] = static_cast<char>(small[0] - 'A' + 'a');
    return fmt::format("gpunbd{} - {}\n", name.empty() ? "" : ' ' + name, small);
}

bool is_for(const Flag& flag, std::string_view action) {
    return action.empty() || flag.actions.empty() ||
           std::ranges::find(flag.actions, action) != flag.actions.end();
}

// Lists the flags of an action, or all flags if `action` is empty.
std::string flags_text(const Description& command, std::string_view action) {
    std::string out;
    for (const FlagGroup& group : command.groups) {
        const bool titled = std::ranges::any_of(group.flags, [&](const Flag& flag) {
            return flag.name != "--help" && is_for(flag, action);
        });
        // --help follows the last flag, and not the title of other actions' flags.
        if (titled || action.empty()) {
            out += group.title.empty() ? "\n" : fmt::format("\n{}:\n", group.title);
        }
        for (const Flag& flag : group.flags) {
            if (is_for(flag, action)) out += entry(flag);
        }
    }
    return out;
}

}  // namespace

std::string help_text(const Description& command, const Commands& all) {
    std::string out = fmt::format("{}\n{}\n{}", title(std::string(command.name), command.brief),
                                  command.usage, command.about);
    if (command.name.empty()) {
        out += "\nCommands:\n";
        for (const auto& each : all) {
            if (each->hidden) continue;
            std::string head = fmt::format("  {}", each->name);
            if (!each->takes.empty()) head += fmt::format(" {}", each->takes);
            out += wrapped(head, fmt::format("{}.", each->brief), text_column);
        }
    }
    out += flags_text(command, "");
    return out + fmt::format("\nExamples:\n{}\n{}", command.examples, command.ending);
}

std::string help_text(const Description& command, const Action& action) {
    return fmt::format("{}\n{}\n{}{}\nExamples:\n{}\n{}",
                       title(fmt::format("{} {}", command.name, action.name), action.brief),
                       action.usage, action.about, flags_text(command, action.name),
                       action.examples, command.ending);
}

}  // namespace gpunbd::config
