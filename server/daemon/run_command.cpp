#include "server/daemon/run_command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "server/daemon/readiness.hpp"
#include "server/net/nbd_uri.hpp"
#include "storage/assertions/assert.hpp"
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

constexpr int signal_base = 128;  // a shell adds it to the number of a fatal signal

int as_shells_report(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : signal_base + WTERMSIG(status);
}

}  // namespace

ForegroundTerminal::ForegroundTerminal()
    : tty_(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)) {}

void ForegroundTerminal::give_to(pid_t group) {
    if (!is_open() || ::tcgetpgrp(tty_.get()) != ::getpgrp()) return;
    set_foreground(group);
    lent_ = true;
}

void ForegroundTerminal::take_back() {
    if (lent_) set_foreground(::getpgrp());
    lent_ = false;
}

void ForegroundTerminal::set_foreground(pid_t group) {
    const storage::SignalsBlocked blocked;  // tcsetpgrp() sends SIGTTOU to a background process
    ::tcsetpgrp(tty_.get(), group);
}

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

RunCommand::RunCommand(ServerContext& context, ServerControl& control)
    : context_(context), control_(control) {}

void RunCommand::start() {
    const config::Options& options = context_.options;
    command_.start(*context_.command.run, options.exports.front().name,
                   first_export_needs_tls(options));
}

void RunCommand::stop() {
    if (running()) context_.lifecycle.exit_code = command_.kill();
}

void RunCommand::on_child_exit() {
    if (command_.ended(context_.lifecycle.exit_code)) control_.drain();
}

}  // namespace gpunbd::server
