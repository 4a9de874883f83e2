#include "server/base/command_group.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

// This runs in a fork of a process that may have other threads, so it uses system calls only.
[[noreturn]] void watch(int alive, const char* directory, const char* socket) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_NAME, "gpunbd watcher");
    // Close standard output and error: a reader of them must not wait for the watcher to exit.
    ::dup2(alive, STDIN_FILENO);
    ::close_range(STDIN_FILENO + 1, ~0U, 0);
    char nothing = 0;
    while (::read(STDIN_FILENO, &nothing, 1) < 0 && errno == EINTR) {
    }
    ::unlink(socket);
    ::rmdir(directory);
    ::kill(0, SIGTERM);  // the watcher itself blocks SIGTERM
    ::kill(0, SIGCONT);
    const timespec grace{.tv_sec = 2, .tv_nsec = 0};
    ::nanosleep(&grace, nullptr);
    ::kill(0, SIGKILL);
    ::_exit(0);
}

std::runtime_error failure() {
    return std::runtime_error(
        fmt::format("--run: cannot start the watcher process: {}", std::strerror(errno)));
}

}  // namespace

CommandGroup::CommandGroup(const std::string& directory, const std::string& socket) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw failure();
    const OwnedFd read_end(ends[0]);
    alive_ = OwnedFd(ends[1]);
    {
        const storage::SignalsBlocked blocked;  // the watcher inherits the mask
        watcher_ = ::fork();
        if (watcher_ == 0) watch(ends[0], directory.c_str(), socket.c_str());
    }
    if (watcher_ < 0) throw failure();
    ::setpgid(watcher_, watcher_);  // also here, so that the group exists on return
}

CommandGroup::~CommandGroup() {
    ::kill(watcher_, SIGKILL);
    ::waitpid(watcher_, nullptr, 0);
}

void CommandGroup::signal(int number) const {
    ::kill(-watcher_, number);
    ::kill(-watcher_, SIGCONT);
}

}  // namespace gpunbd::server
