#include "server/daemon/server.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <utility>

#include "server/base/line_limit.hpp"
#include "server/base/process.hpp"
#include "server/daemon/admin_service.hpp"
#include "server/daemon/client_clones.hpp"
#include "server/daemon/contents_service.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/hand_over.hpp"
#include "server/daemon/housekeeping.hpp"
#include "server/daemon/listeners.hpp"
#include "server/daemon/readiness.hpp"
#include "server/daemon/reclaim_service.hpp"
#include "server/daemon/run_command.hpp"
#include "server/daemon/run_time_exports.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/supervision.hpp"
#include "server/daemon/swap_protection.hpp"
#include "server/daemon/takeover.hpp"
#include "server/daemon/ublk_service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

// The terminal that the server was started from. If it is closed, no user can stop the server.
class ControllingTerminal {
 public:
    ControllingTerminal() : was_open_(is_open()) {}
    // The terminal was open when the server started and has been closed since.
    bool gone() const { return was_open_ && !is_open(); }

 private:
    static bool is_open();

    const bool was_open_;
};

// Handles the signals of the server.
class Signals final : public Service {
 public:
    Signals(ServerContext& context, ServerControl& control);

    void open() override;
    void resume() override;
    void stop() override;

 private:
    void on_signal(int signal);
    void on_hangup();

    ServerContext& context_;
    ServerControl& control_;
    boost::asio::signal_set signals_;
    const ControllingTerminal terminal_;
    bool outlives_terminal_ = false;
    bool waiting_ = false;
};

bool ControllingTerminal::is_open() {
    // /dev/tty is the controlling terminal, even if the standard streams are redirected. It cannot
    // be opened after a hang-up.
    return static_cast<bool>(OwnedFd(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)));
}

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

// One per connection, and some for the rest of the server.
std::uint64_t needed_descriptors(const config::Options& options) {
    constexpr std::uint64_t others = 64;
    return options.limits.connections + others;
}

}  // namespace

Server::Server(const config::ServeCommand& command, config::Options options,
               std::shared_ptr<const admin::EventLog> events)
    : context_(command, std::move(options)) {
    add_services(std::move(events));
}

Server::~Server() = default;

// Services open and start in this order, and stop in the reverse order.
void Server::add_services(std::shared_ptr<const admin::EventLog> events) {
    ServerContext& c = context_;
    ServiceList& list = services_;
    ServerControl& control = *this;
    list.add<Signals>(c, control);
    list.add<OmittedLines>(c.io, client_lines());
    if (::getpid() == 1) list.add<AdoptedChildren>(c.io);
    auto& workers = *(workers_ = &list.add<WorkerPool>(c));
    auto& saves = list.add<Saves>(c);
    exports_ = &list.add<ExportService>(
        c, workers, saves,
        [&list](const auto& next, auto& problems) { return list.reload(next, problems); });
    auto& exports = *exports_;
    contents_ = &list.add<ContentsService>(c, exports);
    auto& queries = list.add<KeptQueries>(c, exports);
    auto& run_time_exports = list.add<RunTimeExports>(c, exports, saves);
    list.add<ClientClones>(c, exports);
    auto& reclaim = *(reclaim_ = &list.add<ReclaimService>(c));
    swap_ = &list.add<SwapProtection>(c, workers, control);
    auto& dispatcher = list.add<ConnectionDispatcher>(c, workers);
    auto& certificates = list.add<CertificateWatch>(c);
    if (c.supervision.predecessor) {
        takeover_ = &list.add<Takeover>(c, workers, exports, dispatcher, control);
    }
    // After the takeover, because the predecessor has its devices until then.
    ublk_ = &list.add<UblkService>(c, workers, control);
    if (c.command.pidfile) list.add<PidFile>(*c.command.pidfile);
    admin_ =
        &list.add<AdminService>(c,
                                AdminService::Parts{workers, run_time_exports, queries, reclaim,
                                                    certificates, dispatcher.counters()},
                                std::move(events));
    if (c.command.run) command_ = &list.add<RunCommand>(c, control);
    auto& listeners = list.add<Listeners>(c, dispatcher, command_);
    list.add<PrivilegeDrop>(c);
    if (const auto timeout = c.supervision.watchdog_timeout; timeout && c.supervision.socket) {
        list.add<Watchdog>(c.io, *timeout, workers.workers(),
                           [&c] { c.supervision.notify("WATCHDOG=1"); });
    }
    if (!c.protects_swap) list.add<HeapTrim>(c.io, workers.workers(), HeapTrim::trim_heap);
    list.add<Readiness>(c, listeners);
    drain_ = &list.add<Drain>(c, workers, control);
    hand_over_ = &list.add<HandOver>(
        c, HandOver::Parts{workers, exports, saves, listeners, reclaim, *ublk_}, control);
}

int Server::run(const std::function<void()>& on_ready) {
    ::signal(SIGPIPE, SIG_IGN);
    if (const auto warning = raise_open_files(needed_descriptors(context_.options))) {
        spdlog::warn("{}", *warning);
    }
    services_.open();
    if (takeover_) takeover_->import_contents();
    exports_->make_first([this, on_ready] {
        ublk_->check_takeover();
        services_.start();
        context_.lifecycle.enter(Phase::serving);
        if (on_ready) on_ready();
    });
    run_events();  // handles signals, and accepts clients once there are exports
    const Lifecycle& lifecycle = context_.lifecycle;
    if (lifecycle.failure) std::rethrow_exception(lifecycle.failure);
    workers_->log_trace();
    services_.stop();
    return lifecycle.exit_code;
}

// An event that fails for lack of memory is lost. Services then re-arm their timers and waits.
void Server::run_events() {
    for (bool failed = false;; failed = true) {
        try {
            if (failed) services_.resume();
            context_.io.run();
            return;
        } catch (const std::exception& error) {
            spdlog::error("an event of the main thread was lost: {}", error.what());
        }
    }
}

void Server::end() {
    if (command_) command_->terminate();
    hand_over_->cancel();
    if (!swap_->delays_end() && !ublk_->delays_end()) drain();
}

void Server::end_now() {
    drain();
    drain_->expire();
}

void Server::end_after_swapoff() {
    if (!ublk_->delays_end()) drain();
}

bool Server::end_is_held() const { return (command_ && command_->running()) || ublk_->ending(); }

void Server::reload() { exports_->reload_file(); }

void Server::log_trace() { workers_->log_trace(); }

void Server::child_exited() { command_->on_child_exit(); }

void Server::hand_over() { hand_over_->begin(); }

void Server::yield() { admin_->yield(); }

void Server::resume() { services_.resume(); }

void Server::taken_over() {
    contents_->settle();
    reclaim_->resume();
}

void Server::drain() {
    if (context_.lifecycle.draining()) return;
    hand_over_->cancel();
    context_.lifecycle.enter(Phase::draining);
    services_.drain();
}

void Server::handed_over() {
    context_.lifecycle.enter(Phase::draining);
    context_.lifecycle.handed_over = true;
    services_.hand_over();
    if (ublk_->left_devices()) drain_->expire();
}

}  // namespace gpunbd::server
