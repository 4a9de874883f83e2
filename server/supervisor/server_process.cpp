#include "server/supervisor/server_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "server/base/line.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using namespace std::chrono_literals;

constexpr auto first_delay = 100ms;
// 6.4 s, well below the 60 s for which clients wait by default.
constexpr unsigned max_doublings = 6;
// 51.2 s: an operator has to correct the configuration first.
constexpr unsigned max_doublings_for_configuration = 9;

constexpr int exit_cannot_run = 127;  // as in a shell

void set_environment(const ServerStart& start, const KeptDescriptors& kept) {
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

[[noreturn]] void become_server(const ServerStart& start, KeptDescriptors& kept, pid_t keeper) {
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

std::optional<RestartPolicy::Clock::duration> RestartPolicy::after_death(Clock::time_point now,
                                                                         Death death) {
    GPUNBD_ASSERT(next_ < restarts_.size(), "at least one restart is allowed");
    std::optional<Clock::time_point>& oldest = restarts_[next_];
    const bool too_often = oldest && now - *oldest < within_;
    if (too_often && !death.keeps_contents) return std::nullopt;
    oldest = now;
    next_ = (next_ + 1) % restarts_.size();
    failures_ = death.was_ready && !too_often ? 0 : failures_ + 1;
    if (failures_ < 2) return Clock::duration{};
    const unsigned most = death.configuration ? max_doublings_for_configuration : max_doublings;
    return first_delay * (1U << std::min(failures_ - 2, most));
}

void RestartPolicy::forget() {
    std::fill(restarts_.begin(), restarts_.end(), std::nullopt);
    failures_ = 0;
}

std::optional<StartGate> StartGate::in(PassedDescriptors& handed_over) {
    std::vector<OwnedFd> found = handed_over.take(start_gate_name);
    if (found.empty()) return std::nullopt;
    return StartGate(std::move(found.front()));
}

bool StartGate::wait() const {
    for (;;) {
        char word = 0;
        const ssize_t got = ::read(pipe_.get(), &word, sizeof word);
        if (got >= 0 || errno != EINTR) return got == sizeof word;
    }
}

pid_t start_server(const ServerStart& start, KeptDescriptors& kept) {
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

PrestartedServer::PrestartedServer(const ServerStart& start, KeptDescriptors& kept) {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    start_pipe_.emplace(ends[1]);
    if (kept.keep(start_gate_name, OwnedFd(ends[0])) != KeptDescriptors::Answer::kept) return;
    pid_ = std::max(start_server(start, kept), pid_t{0});
    kept.remove(start_gate_name);
}

PrestartedServer::~PrestartedServer() {
    if (pid_ != 0) ::kill(pid_, SIGKILL);
}

pid_t PrestartedServer::go() {
    GPUNBD_ASSERT(pid_ != 0, "a pre-started server is released once");
    // If it has ended meanwhile, the keeper reaps it like any server.
    [[maybe_unused]] const ssize_t written = ::write(start_pipe_->get(), "!", 1);
    return std::exchange(pid_, 0);
}

}  // namespace gpunbd::server
