#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/admin/endpoint.hpp"
#include "server/daemon/contents_service.hpp"
#include "server/daemon/housekeeping.hpp"
#include "server/daemon/reclaim_service.hpp"
#include "server/daemon/run_time_exports.hpp"
#include "server/daemon/server_admin_backend.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

// Opens the listeners of the admin endpoint: the configured ones, or a Unix socket in the runtime
// folder.

// Requirements for TCP clients: token, TLS. Both throw std::runtime_error if a file is invalid.
admin::EndpointPolicy admin_policy(const config::AdminOptions& options);
std::shared_ptr<const TlsContext> admin_tls(const config::Options& options);  // null: none

// Returns true if the configuration has an admin address that only one process can use.
bool has_exclusive_admin_address(const config::Options& options);
// Opens the configured addresses; without any, admin-PID.sock, a failure of which is only logged.
// Throws std::runtime_error if a configured address cannot be opened.
void open_admin_listeners(admin::Endpoint& endpoint, const config::Options& options);
// Removes the sockets of processes that have ended.
void remove_stale_admin_sockets(const std::string& folder);

// The admin endpoint of this server.
class AdminService final : public Service, private ServerAdminBackend::Actions {
 public:
    struct Parts {
        const WorkerPool& workers;
        RunTimeExports& exports;
        KeptQueries& queries;
        ReclaimService& reclaim;
        const CertificateWatch& certificates;
        const AcceptCounters& counters;
    };
    AdminService(ServerContext& context, const Parts& parts,
                 std::shared_ptr<const admin::EventLog> events);

    void open() override;
    void start() override;
    Commit reload(const config::Options& next, Problems& problems) override;
    void drain() override { backend_.drains(); }
    // A client that looks for the server finds only the successor.
    void hand_over() override { close_endpoint(); }
    void resume() override;
    void stop() override { endpoint_.reset(); }

    // Closes sockets that a successor is about to open.
    void yield();

 private:
    void close_endpoint();
    enum class Failure { fatal, logged };
    void open_endpoint(Failure failure);

    void perform(const ExportRequest& request, const Completion& completion) override;
    void answer_about_kept(const ServerAdminBackend::KeptQuery& query) override;
    void reclaim(const ReclaimRequest& request, const Completion& completion) override;
    void end_reclaim(const EndOfReclaim& request, const Completion& completion) override;
    void add_reclaim(DeviceStatus& status) const override;
    std::vector<Validity> validities() const override;
    ServerAdminBackend::Volumes volumes() const override;
    std::vector<KeptContents::Unused> unused_contents() const override;

    ServerContext& context_;
    const Parts parts_;
    ServerAdminBackend backend_;
    const std::shared_ptr<const admin::EventLog> events_;
    std::unique_ptr<admin::Endpoint> endpoint_;  // null: no listener
};

}  // namespace gpunbd::server
