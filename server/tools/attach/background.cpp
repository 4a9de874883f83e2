#include "server/tools/attach/background.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "server/base/exit_code.hpp"
#include "server/tools/attach/line.hpp"

namespace gpunbd::attach {
namespace {

bool is_ready(const OwnedFd& pipe) {
    char byte = 0;
    ssize_t got = 0;
    do {
        got = ::read(pipe.get(), &byte, 1);
    } while (got < 0 && errno == EINTR);
    return got == 1;
}

// A process that was killed by a signal has printed no message.
int status_of(pid_t process) {
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    say("a signal killed the process that attaches; start it again");
    return server::exit_failure;
}

}  // namespace

std::variant<Background, Background::CallerEnds, Failure> Background::enter() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failure("pipe", errno);
    const OwnedFd ready(ends[0]);
    OwnedFd caller(ends[1]);
    const pid_t called = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) return failure("fork", errno);
    if (process == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (::getppid() != called) ::_exit(server::exit_failure);
        return Background(std::move(caller));
    }
    ::close(caller.release());  // otherwise read() would not return EOF
    return CallerEnds{is_ready(ready) ? 0 : status_of(process)};
}

void Background::announce_ready() {
    ::setsid();
    say_to_kernel_log();
    const OwnedFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (null.get() >= 0) {
        for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
            ::dup2(null.get(), standard);
        }
    }
    ::prctl(PR_SET_PDEATHSIG, 0);
    const char byte = 1;
    [[maybe_unused]] const ssize_t written = ::write(caller_.get(), &byte, 1);
    ::close(caller_.release());
}

}  // namespace gpunbd::attach
