#include "server/base/lent_terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

LentTerminal::LentTerminal() : tty_(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)) {}

void LentTerminal::give_to(pid_t group) {
    if (!is_there() || ::tcgetpgrp(tty_.get()) != ::getpgrp()) return;
    set_foreground(group);
    lent_ = true;
}

void LentTerminal::take_back() {
    if (lent_) set_foreground(::getpgrp());
    lent_ = false;
}

void LentTerminal::set_foreground(pid_t group) {
    const storage::SignalsBlocked blocked;  // SIGTTOU would stop who is in the background
    ::tcsetpgrp(tty_.get(), group);
}

}  // namespace gpunbd::server
