#include "server/daemon/captive_command.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "server/net/nbd_uri.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr int signal_base = 128;  // a shell adds it to the number of a fatal signal

int as_shells_report(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : signal_base + WTERMSIG(status);
}

}  // namespace

CaptiveCommand::CaptiveCommand() {
    const char* base = std::getenv("TMPDIR");
    std::string pattern = fmt::format("{}/gpunbdXXXXXX", base != nullptr ? base : "/tmp");
    if (::mkdtemp(pattern.data()) == nullptr) {
        throw std::runtime_error(
            fmt::format("--run: cannot create a directory for the socket, {}: {}", pattern,
                        std::strerror(errno)));
    }
    directory_ = pattern;
    socket_path_ = directory_ + "/socket";
    try {
        group_.emplace(directory_, socket_path_);
    } catch (const std::runtime_error&) {
        ::rmdir(directory_.c_str());
        throw;
    }
}

CaptiveCommand::~CaptiveCommand() {
    if (running()) kill();
    ::unlink(socket_path_.c_str());
    ::rmdir(directory_.c_str());
}

void CaptiveCommand::start(const std::string& command, const std::string& export_name, bool tls) {
    GPUNBD_ASSERT(!running(), "one command runs at a time");
    std::vector<std::string> environment;
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
        const std::string_view each(*entry);
        if (!each.starts_with("uri=") && !each.starts_with("unixsocket=")) {
            environment.emplace_back(each);
        }
    }
    environment.push_back("uri=" + unix_uri(socket_path_, export_name, tls));
    environment.push_back("unixsocket=" + socket_path_);
    std::vector<char*> pointers;
    pointers.reserve(environment.size() + 1);
    for (std::string& entry : environment) pointers.push_back(entry.data());
    pointers.push_back(nullptr);
    std::string shell = "/bin/sh";
    std::string option = "-c";
    std::string text = command;
    const std::array<char*, 4> arguments{shell.data(), option.data(), text.data(), nullptr};
    // The command gets the default signal handling, independent of this process.
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t none;
    ::sigemptyset(&none);
    sigset_t defaults;
    ::sigfillset(&defaults);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setpgroup(&attributes, group_->id());
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    terminal_.give_to(group_->id());
    const int error = ::posix_spawn(&pid_, shell.c_str(), nullptr, &attributes, arguments.data(),
                                    pointers.data());
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) {
        throw std::runtime_error(
            fmt::format("--run: cannot start {}: {}", shell, std::strerror(error)));
    }
}

void CaptiveCommand::terminate() const {
    if (running()) group_->signal(SIGTERM);
}

int CaptiveCommand::kill() {
    GPUNBD_ASSERT(running(), "only a command that runs is killed");
    group_->signal(SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return as_shells_report(status);
}

bool CaptiveCommand::ended(int& exit_status) {
    int status = 0;
    if (!running() || ::waitpid(pid_, &status, WNOHANG | WUNTRACED) != pid_) return false;
    if (WIFSTOPPED(status)) {
        if (!terminal_.is_open()) return false;
        terminal_.take_back();
        ::kill(0, SIGTSTP);
        terminal_.give_to(group_->id());
        group_->signal(SIGCONT);
        return false;
    }
    pid_ = -1;
    terminal_.take_back();
    exit_status = as_shells_report(status);
    return true;
}

}  // namespace gpunbd::server
