// A keeper of any command: it is run by `keeping_program keep RESTARTS SECONDS DESCRIPTORS
// COMMAND...` and, as `gpunbd keep` runs itself as a server, runs itself as `keeping_program serve
// COMMAND...`.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "server/keeping/keeper.hpp"

int main(int argc, char** argv) {
    constexpr int first_of_command = 5;
    if (argc > 2 && std::string_view(argv[1]) == "serve") {
        ::execvp(argv[2], argv + 2);
        return EXIT_FAILURE;
    }
    if (argc <= first_of_command) return EXIT_FAILURE;
    std::vector<std::string> command(argv + first_of_command, argv + argc);
    command.insert(command.begin(), "serve");
    return gpunbd::server::keep({.restarts = std::stoul(argv[2]),
                                 .within = std::chrono::seconds(std::stoul(argv[3])),
                                 .descriptors = std::stoul(argv[4]),
                                 .swap = false},
                                command);
}
