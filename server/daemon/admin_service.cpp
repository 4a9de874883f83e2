#include "server/daemon/admin_service.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/network.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/net/unix_address.hpp"

namespace gpunbd::server {

namespace {

constexpr std::string_view name_start = "admin-";
constexpr std::string_view name_end = ".sock";

std::optional<pid_t> pid_in(std::string_view name) {
    if (!name.starts_with(name_start) || !name.ends_with(name_end)) return std::nullopt;
    name.remove_prefix(name_start.size());
    name.remove_suffix(std::min(name_end.size(), name.size()));
    pid_t pid = 0;
    const auto [stopped, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    const bool all = error == std::errc() && stopped == name.data() + name.size();
    return all && pid > 0 ? std::optional(pid) : std::nullopt;
}

bool has_ended(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

void open_own_socket(admin::Endpoint& endpoint) {
    try {
        const RuntimeFolder folder = own_runtime_folder();
        remove_stale_admin_sockets(folder.path);
        endpoint.open_unix(fmt::format("{}/{}{}{}", folder.path, name_start, ::getpid(), name_end),
                           true);
        if (folder.why_no_other.empty()) return;
        spdlog::info("gpunbd status and gpunbd kept reach this server in {} ({})", folder.path,
                     folder.why_no_other);
    } catch (const std::exception& error) {
        spdlog::info(
            "gpunbd status and gpunbd kept cannot reach this server: {}; set --admin-socket",
            error.what());
    }
}

void open_tcp_socket(admin::Endpoint& endpoint, const config::Options& options) {
    const config::AdminTcp& tcp = options.admin.tcp;
    const config::TcpListener address{
        .address = *tcp.address, .port = tcp.port, .port_option = tcp.port_option};
    const auto parsed = config::parse_zoned_address(*tcp.address);
    if (!tcp.tls && !(parsed && parsed->address.loopback())) {
        spdlog::warn(
            "admin endpoint: its token is sent unencrypted at {} port {}; set admin.tcp.tls",
            *tcp.address, tcp.port);
    }
    endpoint.open_tcp(address, admin_policy(options.admin), admin_tls(options));
}

}  // namespace

admin::EndpointPolicy admin_policy(const config::AdminOptions& options) {
    admin::EndpointPolicy policy;
    for (const std::string& name : options.hosts) {
        const auto address = config::parse_ip(name);
        policy.names.push_back(address && address->v6 ? fmt::format("[{}]", address->text())
                                                      : name);
    }
    if (!options.tcp.token.empty()) policy.token = admin::Token::load(options.tcp.token);
    return policy;
}

std::shared_ptr<const TlsContext> admin_tls(const config::Options& options) {
    if (!options.admin.tcp.tls) return nullptr;
    config::Options of_admin;
    of_admin.tls = {.mode = config::TlsMode::required,
                    .certificates = options.tls.certificates,
                    .verify_clients = true,
                    .psk = {}};
    return TlsContext::load(of_admin);
}

bool has_exclusive_admin_address(const config::Options& options) {
    const config::AdminOptions& admin = options.admin;
    return admin.tcp.address || (admin.socket && *admin.socket != config::no_socket) ||
           options.keeping.socket;
}

void open_admin_listeners(admin::Endpoint& endpoint, const config::Options& options) {
    const std::optional<std::string>& path = options.admin.socket;
    if (!path) {
        open_own_socket(endpoint);
    } else if (*path != config::no_socket) {
        endpoint.open_unix(*path);
    }
    if (options.admin.tcp.address) open_tcp_socket(endpoint, options);
    if (options.keeping.socket) endpoint.open_kept(*options.keeping.socket);
}

void remove_stale_admin_sockets(const std::string& folder) {
    std::error_code error;
    for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
         each.increment(error)) {
        const auto pid = pid_in(each->path().filename().string());
        if (!pid || (*pid != ::getpid() && !has_ended(*pid))) continue;
        config::UnixListener socket;
        socket.path = each->path().string();
        try {
            // A process id in another container's socket name can equal one of this container.
            if (is_stale_socket(socket)) ::unlink(socket.path.c_str());
        } catch (const AddressError&) {
            continue;  // a process listens on it
        }
    }
}

AdminService::AdminService(ServerContext& context, const Parts& parts,
                           std::shared_ptr<const admin::EventLog> events)
    : context_(context),
      parts_(parts),
      backend_(context.io, context.exports, parts.counters, *this),
      events_(std::move(events)) {}

// Before anything is kept: a supervisor restarts a server that fails after that.
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

void AdminService::answer_about_kept(const ServerAdminBackend::KeptQuery& query) {
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

std::vector<KeptContents::Unused> AdminService::unused_contents() const {
    const KeptContents* const contents = context_.kept.contents.get();
    return contents == nullptr ? std::vector<KeptContents::Unused>() : contents->unused();
}

}  // namespace gpunbd::server
