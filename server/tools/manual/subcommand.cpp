#include "server/tools/manual/subcommand.hpp"

#include <fmt/format.h>

#include <fstream>

#include "config/command_line/store.hpp"
#include "server/base/exit_code.hpp"
#include "server/tools/manual/page.hpp"

namespace gpunbd::tools {

using namespace config;

ManualCommand::ManualCommand()
    : Command({.name = "manual",
               .takes = file_argument,
               .example = "gpunbd.yaml.5.in",
               .brief = "Complete the template of a manual page",
               .usage = "Usage: gpunbd manual FILE\n",
               .about = "Used by the build of gpunbd.\n",
               .groups = {{"Flags", {}}},
               .examples = "  gpunbd manual config/packaging/man/gpunbd.yaml.5.in\n",
               .ending = "Exit codes: 0 done; 1 the file cannot be read; 2 wrong usage.\n"
                         "See also: gpunbd(8)\n",
               .hidden = true,
               .store = into(path)}) {}

int ManualCommand::run(const Commands& all) {
    std::ifstream page(path);
    if (!page) {
        fmt::print(stderr, "gpunbd manual: {} cannot be read\n", path);
        return server::exit_failure;
    }
    fmt::print("{}", manual_page(page, all));
    return 0;
}

}  // namespace gpunbd::tools
