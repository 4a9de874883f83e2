// Runs any command under the supervisor: `keeping_program keep RESTARTS SECONDS DESCRIPTORS
// COMMAND...` runs itself as `keeping_program serve COMMAND...`, as `gpunbd keep` runs `gpunbd
// serve`.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "server/supervisor/supervisor.hpp"

int main(int argc, char** argv) {
    constexpr int command_index = 5;
    if (argc > 2 && std::string_view(argv[1]) == "serve") {
        ::execvp(argv[2], argv + 2);
        return EXIT_FAILURE;
    }
    if (argc <= command_index) return EXIT_FAILURE;
    std::vector<std::string> command(argv + command_index, argv + argc);
    command.insert(command.begin(), "serve");
    return gpunbd::server::keep({.restarts = std::stoul(argv[2]),
                                 .within = std::chrono::seconds(std::stoul(argv[3])),
                                 .descriptors = std::stoul(argv[4]),
                                 .swap = false},
                                command, {});
}
