#include "server/daemon/admin_service.hpp"

#include <spdlog/spdlog.h>

#include <stdexcept>
#include <utility>

#include "server/daemon/admin_listeners.hpp"

namespace gpunbd::server {

namespace {

ServerAdminBackend::Actions actions_of(const ServerContext& context,
                                       const AdminService::Parts& parts) {
    return {
        .perform = [&exports = parts.exports](
                       const auto& request,
                       const auto& completion) { exports.perform(request, completion); },
        .answer_about_kept = [&queries =
                                  parts.queries](const auto& query) { queries.answer(query); },
        .reclaim = [&reclaim = parts.reclaim](
                       const auto& request,
                       const auto& completion) { reclaim.reclaim(request, completion); },
        .end_reclaim = [&reclaim = parts.reclaim](
                           const auto& request,
                           const auto& completion) { reclaim.end(request, completion); },
        .add_reclaim = [&reclaim = parts.reclaim](DeviceStatus& status) { reclaim.add_to(status); },
        .validities = [&certificates = parts.certificates] { return certificates.validities(); },
        .volumes = [&context] { return context.disposal.volumes(); },
        .unused_contents =
            [&context] {
                const RetainedContents* const contents = context.retained.contents.get();
                return contents == nullptr ? std::vector<RetainedContents::Unused>()
                                           : contents->unused();
            }};
}

}  // namespace

AdminService::AdminService(ServerContext& context, const Parts& parts,
                           std::shared_ptr<const admin::EventLog> events)
    : context_(context),
      workers_(parts.workers),
      backend_(context.io, context.exports, parts.counters, actions_of(context, parts)),
      events_(std::move(events)) {}

// Before anything is retained: a supervisor restarts a server that fails after that.
void AdminService::open() {
    if (!context_.supervision.predecessor) open_endpoint(Failure::fatal);
}

void AdminService::start() {
    if (context_.supervision.predecessor) open_endpoint(Failure::logged);
    ServerAdminBackend::Workers workers;
    for (const auto& worker : workers_.workers()) workers.push_back(worker.get());
    backend_.serves(std::move(workers));
}

Service::Commit AdminService::reload(const config::Options& next, Problems& /*problems*/) {
    if (!context_.options.admin.tcp.tls || !next.admin.tcp.tls) return {};
    return [this, tls = admin_tls(next)] {
        if (endpoint_) endpoint_->renew_tls(tls);
    };
}

void AdminService::resume() {
    if (!endpoint_ && context_.lifecycle.phase() == Phase::serving) open_endpoint(Failure::logged);
}

void AdminService::yield() {
    if (has_exclusive_admin_address(context_.options)) close_endpoint();
}

void AdminService::close_endpoint() {
    if (endpoint_) endpoint_->set_replaced();
    endpoint_.reset();
}

void AdminService::open_endpoint(Failure failure) {
    auto endpoint = std::make_unique<admin::Endpoint>(backend_, events_);
    try {
        open_admin_listeners(*endpoint, context_.options);
        if (!endpoint->listens()) return;
        endpoint->start();
        endpoint_ = std::move(endpoint);
    } catch (const std::runtime_error& error) {
        if (failure == Failure::fatal) throw;
        spdlog::warn("the admin endpoint is not available: {}", error.what());
    }
}

}  // namespace gpunbd::server
