#include "server/tools/status/signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace gpunbd::status {
namespace {

constexpr std::array<int, 7> handled_signals{SIGINT,  SIGTERM,  SIGHUP, SIGQUIT,
                                             SIGTSTP, SIGWINCH, SIGCONT};

sigset_t set_of_taken() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int each : handled_signals) ::sigaddset(&set, each);
    return set;
}

int blocked_taken(sigset_t& before) {
    const sigset_t set = set_of_taken();
    ::sigprocmask(SIG_BLOCK, &set, &before);
    const int fd = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
    return fd;
}

}  // namespace

Signals::Signals() : fd_(blocked_taken(before_)) {}

Signals::~Signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> Signals::take() {
    signalfd_siginfo one{};
    if (::read(fd_.get(), &one, sizeof one) != sizeof one) return std::nullopt;
    return static_cast<int>(one.ssi_signo);
}

void Signals::stop() {
    sigset_t stop;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTSTP);
    ::raise(SIGTSTP);
    // SIGTSTP is delivered here. The kernel ignores it if no shell could resume the process.
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
}

}  // namespace gpunbd::status
