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
           .brief = "Print the completions of bash, zsh or fish",
           .usage = "Usage: gpunbd completion bash|zsh|fish\n",
           .about = R"(Packages install them. Without a package, one of these has the shell complete
gpunbd's commands, flags and their values:
  bash   in ~/.bashrc:  source <(gpunbd completion bash)
  zsh    gpunbd completion zsh > _gpunbd, in a folder of $fpath
  fish   gpunbd completion fish > ~/.config/fish/completions/gpunbd.fish
)",
           .groups = {{"Flags", {}}},
           .examples = "  source <(gpunbd completion bash)\n",
           .ending = R"(Exit codes: 0 done; 2 wrong usage.
See also: gpunbd(8)
)",
           .synopsis = R"(.Nm
.Cm completion
.Cm bash | zsh | fish
)",
           .manual = R"(.It Cm completion Cm bash | zsh | fish
Print what the shell needs to complete the commands, the flags and their values.
Packages install it; without one, read it in from the shell's own start-up file:
.Dl source <(gpunbd completion bash)
)",
           .store = into(shell)}) {}

int CompletionCommand::run(const Commands& all) {
    fmt::print("{}", completion_script(shell, all));
    return 0;
}

}  // namespace gpunbd::tools
