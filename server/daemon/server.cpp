#include "server/daemon/server.hpp"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "server/base/line_limit.hpp"
#include "server/base/open_files.hpp"
#include "server/daemon/admin_service.hpp"
#include "server/daemon/adopted_children.hpp"
#include "server/daemon/certificate_watch.hpp"
#include "server/daemon/client_clones.hpp"
#include "server/daemon/connection_dispatcher.hpp"
#include "server/daemon/contents_service.hpp"
#include "server/daemon/drain.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/hand_over.hpp"
#include "server/daemon/heap_trim.hpp"
#include "server/daemon/listeners.hpp"
#include "server/daemon/omitted_lines.hpp"
#include "server/daemon/pid_file.hpp"
#include "server/daemon/privilege_drop.hpp"
#include "server/daemon/readiness.hpp"
#include "server/daemon/reclaim_service.hpp"
#include "server/daemon/retained_queries.hpp"
#include "server/daemon/run_command.hpp"
#include "server/daemon/run_time_exports.hpp"
#include "server/daemon/signals.hpp"
#include "server/daemon/swap_protection.hpp"
#include "server/daemon/takeover.hpp"
#include "server/daemon/ublk_service.hpp"
#include "server/daemon/watchdog.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

namespace {

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
    auto& queries = list.add<RetainedQueries>(c, exports);
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
