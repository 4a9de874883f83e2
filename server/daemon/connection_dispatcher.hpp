// Gives each accepted connection to the least busy worker, if the limits admit it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/daemon/accept_counters.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/net/transport/tls_context.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class ConnectionDispatcher final : public Service {
 public:
    ConnectionDispatcher(ServerContext& context, const WorkerPool& workers);

    void open() override;
    Commit reload(const config::Options& next, Problems& problems) override;

    void accept(OwnedFd fd, Peer peer);
    // Continues a connection of the predecessor.
    void adopt(Predecessor::Client client);
    const AcceptCounters& counters() const { return counters_; }

 private:
    std::vector<std::string> tls_warnings(const config::Options& options) const;

    ServerContext& context_;
    const WorkerPool& workers_;
    const SessionLimits limits_;
    std::shared_ptr<const TlsContext> tls_;  // of new connections; null: off
    AcceptCounters counters_;
};

}  // namespace gpunbd::server
