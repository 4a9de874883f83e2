#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/net/connection_slots.hpp"
#include "server/net/transport/tls_context.hpp"
#include "storage/base/counter.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// Counts the accepted and the refused connections.
struct AcceptCounters {
    storage::Counter accepted;
    std::array<storage::Counter, connection_limits.size()> refused;  // by ConnectionLimit
};

// Gives each accepted connection to the least busy worker, if the limits admit it.
class ConnectionDispatcher final : public Service {
 public:
    ConnectionDispatcher(ServerContext& context, const WorkerPool& workers);

    void open() override;
    Commit reload(const config::Options& next, Problems& problems) override;

    void accept(OwnedFd fd, Peer peer);
    // Continues a connection of the predecessor.
    void take_over(Predecessor::Client client);
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
