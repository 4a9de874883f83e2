#include "server/base/foreground_terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

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

}  // namespace gpunbd::server
