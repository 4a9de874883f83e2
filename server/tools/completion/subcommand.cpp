#include "server/tools/completion/subcommand.hpp"

#include <fmt/format.h>

#include "config/command_line/store.hpp"
#include "server/tools/completion/scripts.hpp"

namespace gpunbd::tools {

using namespace config;

CompletionCommand::CompletionCommand()
    : Command(
          {.name = "completion",
           .takes = "SHELL",
           .example = "bash",
           .words = {"bash", "zsh", "fish"},
           .kind = "shells",
           .brief = "Print the completion script for bash, zsh or fish",
           .usage = "Usage: gpunbd completion bash|zsh|fish\n",
           .about = R"(Packages install the completions. Without a package, enable the completion of
commands, flags and their values with one of these:
  bash   in ~/.bashrc:  source <(gpunbd completion bash)
  zsh    gpunbd completion zsh > _gpunbd, in a folder of $fpath
  fish   gpunbd completion fish > ~/.config/fish/completions/gpunbd.fish
)",
           .groups = {{"Flags", {}}},
           .examples = "  source <(gpunbd completion bash)\n",
           .ending = R"(Exit codes: 0 done; 2 wrong usage.
See also: gpunbd(8)
)",
           .manual =
               R"(Print a script with which the shell completes commands, flags and their values.
Packages install it.
Without a package, source it in the start-up file of the shell:
.Dl source <(gpunbd completion bash)
)",
           .store = into(shell)}) {}

int CompletionCommand::run(const Commands& all) {
    fmt::print("{}", completion_script(shell, all));
    return 0;
}

}  // namespace gpunbd::tools
