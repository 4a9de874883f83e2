#include "server/base/machine_shutdown.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

namespace {

std::string read_all(int fd) {
    std::string out;
    std::array<char, 256> part{};
    for (;;) {
        const ssize_t count = ::read(fd, part.data(), part.size());
        if (count > 0) out.append(part.data(), static_cast<std::size_t>(count));
        if (count == 0 || (count < 0 && errno != EINTR)) return out;
    }
}

// The standard output of a program. It runs with all signals blocked: a supervisor that ends this
// process may send SIGTERM to all processes of the service.
std::string output_of(const char* const* command) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    const OwnedFd reader(ends[0]);
    OwnedFd writer(ends[1]);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, writer.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t all;
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t program = -1;
    const int error = ::posix_spawnp(&program, command[0], &files, &attributes,
                                     const_cast<char* const*>(command), ::environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    if (error != 0) return {};
    writer = OwnedFd();
    std::string out = read_all(reader.get());
    while (::waitpid(program, nullptr, 0) < 0 && errno == EINTR) {
    }
    return out;
}

}  // namespace

bool machine_is_shutting_down() {
    // Not is-system-running, which reports "starting" until the boot has finished.
    constexpr std::array<const char*, 5> command = {"systemctl", "list-jobs", "--no-legend",
                                                    "shutdown.target", nullptr};
    return output_of(command.data()).find("shutdown.target start ") != std::string::npos;
}

}  // namespace gpunbd::server
