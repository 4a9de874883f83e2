#include "server/tools/help/subcommand.hpp"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "config/command_line/help_text.hpp"
#include "config/command_line/store.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

std::vector<std::string_view> names_of(const Commands& others) {
    std::vector<std::string_view> out;
    for (const auto& each : others) {
        if (!each->hidden) out.push_back(each->name);
    }
    out.emplace_back("help");
    return out;
}

}  // namespace

HelpCommand::HelpCommand(const Commands& others)
    : Command({.name = "help",
               .called = "man manual usage",
               .takes = "COMMAND",
               .example = "serve",
               .words = names_of(others),
               .kind = "commands",
               .optional = true,
               .brief = "Show help for gpunbd or for a command",
               .usage = "Usage: gpunbd help [COMMAND]\n",
               .about = "Prints the same as --help after the command.\n",
               .groups = {{"Flags", {}}},
               .examples = "  gpunbd help\n  gpunbd help attach\n",
               .ending = R"(Exit codes: 0 done; 2 wrong usage.
See also: gpunbd(8)
)",
               .store = into(about)}) {}

int HelpCommand::run(const Commands& all) {
    const Description& command =
        about.empty() ? program() : static_cast<const Description&>(*find_command(all, about));
    fmt::print("{}", help_text(command, all));
    return 0;
}

}  // namespace gpunbd::tools
