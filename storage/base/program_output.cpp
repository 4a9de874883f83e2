#include "storage/base/program_output.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::size_t longest_output = 64 << 10;  // bytes

// What exceeds the limit is read too, so that the program can end.
std::string read_all(const OwnedFd& from) {
    std::string out;
    std::array<char, 512> piece{};
    for (;;) {
        const ssize_t count = ::read(from.get(), piece.data(), piece.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return out;
        if (out.size() < longest_output) out.append(piece.data(), static_cast<std::size_t>(count));
    }
}

// Returns the process; -1 on failure.
pid_t start(std::vector<std::string>& command, const OwnedFd& output) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, output.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t all;
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t program = -1;
    const int error =
        ::posix_spawnp(&program, arguments[0], &files, &attributes, arguments.data(), ::environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    return error == 0 ? program : -1;
}

}  // namespace

std::optional<std::string> output_of(std::vector<std::string> command) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
    const OwnedFd reader(ends[0]);
    OwnedFd writer(ends[1]);
    const pid_t program = start(command, writer);
    if (program < 0) return std::nullopt;
    writer = OwnedFd();
    std::string out = read_all(reader);
    int status = 0;  // stays 0 if this process ignores the ends of its children
    while (::waitpid(program, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) return std::nullopt;
    return out;
}

}  // namespace gpunbd::storage
