#include "server/supervisor/server_process.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "server/base/line.hpp"

namespace gpunbd::server {

namespace {

constexpr int exit_cannot_run = 127;  // as in a shell

void set_environment(const ServerStart& start, const StoredDescriptors& kept) {
    ::setenv("NOTIFY_SOCKET", start.notify_address.c_str(), 1);
    ::setenv("FDSTORE", std::to_string(kept.capacity()).c_str(), 1);
    // The watchdog of the keeper's supervisor applies to the keeper, not to this process.
    ::unsetenv("WATCHDOG_PID");
    ::unsetenv("WATCHDOG_USEC");
    if (kept.size() == 0) return;
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", std::to_string(kept.size()).c_str(), 1);
    ::setenv("LISTEN_FDNAMES", kept.joined_names().c_str(), 1);
}

[[noreturn]] void give_up(const char* what, int error) {
    log("cannot start the server: {}: {}", what, std::strerror(error));
    ::_exit(exit_cannot_run);
}

[[noreturn]] void become_server(const ServerStart& start, StoredDescriptors& kept, pid_t keeper) {
    // Only the keeper gets the terminal's SIGINT; it forwards the signal once.
    ::setpgid(0, 0);
    // Writes to a server without a keeper would not be kept.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != keeper) ::_exit(exit_cannot_run);
    if (!kept.hand_over()) give_up("the stored descriptors cannot be handed over", errno);
    set_environment(start, kept);
    std::string name = start.program;
    std::vector<std::string> arguments = start.arguments;
    std::vector<char*> pointers{name.data()};
    for (std::string& each : arguments) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    ::setrlimit(RLIMIT_NOFILE, &start.open_files);
    ::sigprocmask(SIG_SETMASK, &start.signals, nullptr);
    ::execv(start.program.c_str(), pointers.data());
    give_up(start.program.c_str(), errno);
}

}  // namespace

pid_t start_server(const ServerStart& start, StoredDescriptors& kept) {
    const pid_t keeper = ::getpid();
    const pid_t server = ::fork();
    if (server != 0) return server;
    try {
        become_server(start, kept, keeper);
    } catch (const std::exception& error) {
        log("cannot start the server: {}", error.what());
    }
    ::_exit(exit_cannot_run);
}

}  // namespace gpunbd::server
