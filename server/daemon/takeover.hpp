// Takes over the contents, the connections and the service from the predecessor (see Predecessor).
#pragma once

#include <vector>

#include "server/daemon/connection_dispatcher.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/server_control.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

class Takeover final : public Service {
 public:
    Takeover(ServerContext& context, WorkerPool& workers, const ExportService& exports,
             ConnectionDispatcher& dispatcher, ServerControl& control);

    // Imports contents, before the first exports are made.
    void import_contents();
    // Returns when the predecessor has stopped serving.
    void start() override;

 private:
    ServerContext& context_;
    WorkerPool& workers_;
    const ExportService& exports_;
    ConnectionDispatcher& dispatcher_;
    ServerControl& control_;
    std::vector<Predecessor::Client> clients_;  // until they are adopted
};

}  // namespace gpunbd::server
