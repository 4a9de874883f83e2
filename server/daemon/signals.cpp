#include "server/daemon/signals.hpp"

#include <signal.h>
#include <spdlog/spdlog.h>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

Signals::Signals(ServerContext& context, ServerControl& control)
    : context_(context), control_(control), signals_(context.io) {}

void Signals::open() {
    for (const int each : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) signals_.add(each);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    outlives_terminal_ = hangup.sa_handler == SIG_IGN;  // started by nohup
    if (context_.command.config_file || !outlives_terminal_) signals_.add(SIGHUP);
    if (context_.command.run) signals_.add(SIGCHLD);
    resume();
}

void Signals::resume() {
    if (waiting_) return;
    signals_.async_wait([this](boost::system::error_code error, int signal) {
        waiting_ = false;
        if (error) return;
        on_signal(signal);
        resume();
    });
    waiting_ = true;
}

// After this, a signal must not kill the process while it shuts down.
void Signals::stop() {
    const storage::SignalsBlocked blocked;  // between the two calls
    for (const int each : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
        signals_.remove(each);
        ::signal(each, SIG_IGN);
    }
}

void Signals::on_signal(int signal) {
    if (signal == SIGCHLD) {
        control_.child_exited();
    } else if (signal == SIGHUP) {
        on_hangup();
    } else if (signal == SIGUSR1) {
        control_.log_trace();
    } else if (signal == SIGUSR2) {
        control_.hand_over();
    } else if (context_.lifecycle.ending()) {
        control_.end_now();
    } else {
        control_.end();
    }
}

// SIGHUP has two meanings: reload the configuration, and the terminal was closed.
void Signals::on_hangup() {
    if (context_.lifecycle.ending()) return;  // a closing terminal may send several
    if (!context_.command.config_file) {
        spdlog::info("SIGHUP: there is no configuration file to read again, so the server ends");
        control_.end();
    } else if (terminal_.gone() && !outlives_terminal_) {
        spdlog::info("SIGHUP: the terminal has been closed, so the server ends");
        control_.end();
    } else {
        control_.reload();
    }
}

}  // namespace gpunbd::server
