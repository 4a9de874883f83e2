// Takes over from the predecessor (see Predecessor): contents, connections, and the right to serve.
#pragma once

#include <vector>

#include "server/daemon/connection_dispatcher.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

class Takeover final : public Service {
 public:
    // `context` has a predecessor.
    Takeover(ServerContext& context, WorkerPool& workers, const ExportService& exports,
             ConnectionDispatcher& dispatcher);

    // Before the first exports are made, from what it imports.
    void import_contents();
    // Returns once the predecessor serves no longer.
    void start() override;

 private:
    ServerContext& context_;
    WorkerPool& workers_;
    const ExportService& exports_;
    ConnectionDispatcher& dispatcher_;
    std::vector<Predecessor::Client> clients_;  // until they are adopted
};

}  // namespace gpunbd::server
