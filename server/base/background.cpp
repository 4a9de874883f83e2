#include "server/base/background.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "server/base/process.hpp"

namespace gpunbd::server {
namespace {

std::string last_error(const std::string& what) { return what + ": " + std::strerror(errno); }

void discard(std::initializer_list<int> streams) {
    const OwnedFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (null.get() < 0) return;
    for (const int stream : streams) ::dup2(null.get(), stream);
}

// Also keeps the standard streams.
void close_all_but(int kept) {
    constexpr unsigned first = STDERR_FILENO + 1;
    const auto own = static_cast<unsigned>(kept);
    if (own > first) ::close_range(first, own - 1, 0);
    ::close_range(own + 1, ~0U, 0);
}

bool is_ready(const OwnedFd& pipe) {
    char byte = 0;
    ssize_t got = 0;
    do {
        got = ::read(pipe.get(), &byte, 1);
    } while (got < 0 && errno == EINTR);
    return got == 1;
}

// The status of a process that ended before it was ready. It is never 0, even if a signal ended it.
std::optional<int> status_of(pid_t process) {
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status)) return std::nullopt;
    return WEXITSTATUS(status) == 0 ? exit_failure : WEXITSTATUS(status);
}

}  // namespace

std::variant<Background, Background::CallerEnds, std::string> Background::enter() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return last_error("pipe");
    const OwnedFd ready(ends[0]);
    OwnedFd caller(ends[1]);
    const pid_t called = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) return last_error("fork");
    if (process == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (::getppid() != called) ::_exit(exit_failure);
        ::setsid();
        discard({STDIN_FILENO, STDOUT_FILENO});
        close_all_but(caller.get());
        return Background(std::move(caller));
    }
    ::close(caller.release());  // otherwise read() would not return EOF
    return CallerEnds{is_ready(ready) ? 0 : status_of(process)};
}

void Background::announce_ready(Output output) {
    if (output == Output::discard) discard({STDERR_FILENO});
    ::prctl(PR_SET_PDEATHSIG, 0);
    const char byte = 1;
    [[maybe_unused]] const ssize_t written = ::write(caller_.get(), &byte, 1);
    ::close(caller_.release());
}

int run_in_background(std::string_view command,
                      const std::function<int(const std::function<void()>& on_ready)>& work) {
    for (const char* variable : {"NOTIFY_SOCKET", "LISTEN_FDS"}) {
        if (std::getenv(variable) == nullptr) continue;
        fmt::print(stderr,
                   "{}: --background: {} is set, so a supervisor waits for this process; leave "
                   "--background out, or unset {}\n",
                   command, variable, variable);
        return exit_usage;
    }
    auto entered = Background::enter();
    if (const auto* const caller = std::get_if<Background::CallerEnds>(&entered)) {
        if (caller->status) return *caller->status;
        fmt::print(stderr, "{}: a signal killed the process before it was ready\n", command);
        return exit_failure;
    }
    if (const auto* const error = std::get_if<std::string>(&entered)) {
        fmt::print(stderr, "{}: {}\n", command, *error);
        return exit_failure;
    }
    auto& background = std::get<Background>(entered);
    return work([&background] { background.announce_ready(Background::Output::keep_stderr); });
}

}  // namespace gpunbd::server
