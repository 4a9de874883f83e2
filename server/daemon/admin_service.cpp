#include "server/daemon/admin_service.hpp"

#include <spdlog/spdlog.h>

#include <stdexcept>
#include <utility>

#include "server/daemon/admin_listeners.hpp"

namespace gpunbd::server {

AdminService::AdminService(ServerContext& context, const Parts& parts,
                           std::shared_ptr<const admin::EventLog> events)
    : context_(context),
      parts_(parts),
      backend_(context.io, context.exports, parts.counters, *this),
      events_(std::move(events)) {}

// Before anything is retained: a supervisor restarts a server that fails after that.
void AdminService::open() {
    if (!context_.supervision.predecessor) open_endpoint(Failure::fatal);
}

void AdminService::start() {
    if (context_.supervision.predecessor) open_endpoint(Failure::logged);
    ServerAdminBackend::Workers workers;
    for (const auto& worker : parts_.workers.workers()) workers.push_back(worker.get());
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

void AdminService::perform(const ExportRequest& request, const Completion& completion) {
    parts_.exports.perform(request, completion);
}

void AdminService::answer_about_kept(const ServerAdminBackend::RetainedQuery& query) {
    parts_.queries.answer(query);
}

void AdminService::reclaim(const ReclaimRequest& request, const Completion& completion) {
    parts_.reclaim.reclaim(request, completion);
}

void AdminService::end_reclaim(const EndOfReclaim& request, const Completion& completion) {
    parts_.reclaim.end(request, completion);
}

void AdminService::add_reclaim(DeviceStatus& status) const { parts_.reclaim.add_to(status); }

std::vector<Validity> AdminService::validities() const { return parts_.certificates.validities(); }

ServerAdminBackend::Volumes AdminService::volumes() const { return context_.disposal.volumes(); }

std::vector<RetainedContents::Unused> AdminService::unused_contents() const {
    const RetainedContents* const contents = context_.retained.contents.get();
    return contents == nullptr ? std::vector<RetainedContents::Unused>() : contents->unused();
}

}  // namespace gpunbd::server
