// The admin endpoint of this server.
#pragma once

#include <memory>

#include "server/admin/endpoint.hpp"
#include "server/daemon/certificate_watch.hpp"
#include "server/daemon/connection_dispatcher.hpp"
#include "server/daemon/reclaim_service.hpp"
#include "server/daemon/retained_queries.hpp"
#include "server/daemon/run_time_exports.hpp"
#include "server/daemon/server_admin_backend.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

class AdminService final : public Service {
 public:
    struct Parts {
        const WorkerPool& workers;
        RunTimeExports& exports;
        RetainedQueries& queries;
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

    ServerContext& context_;
    const WorkerPool& workers_;
    ServerAdminBackend backend_;
    const std::shared_ptr<const admin::EventLog> events_;
    std::unique_ptr<admin::Endpoint> endpoint_;  // null: no listener
};

}  // namespace gpunbd::server
