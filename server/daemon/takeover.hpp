// Takes over the contents, the connections and the service from the predecessor (see Predecessor).
#pragma once

#include <functional>
#include <vector>

#include "server/daemon/connection_dispatcher.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

class Takeover final : public Service {
 public:
    // `taken_over` is called once this server serves. Nothing may change the contents before.
    Takeover(ServerContext& context, WorkerPool& workers, const ExportService& exports,
             ConnectionDispatcher& dispatcher, std::function<void()> taken_over);

    // Imports contents, before the first exports are made.
    void import_contents();
    // Returns when the predecessor has stopped serving.
    void start() override;

 private:
    ServerContext& context_;
    WorkerPool& workers_;
    const ExportService& exports_;
    ConnectionDispatcher& dispatcher_;
    const std::function<void()> taken_over_;
    std::vector<Predecessor::Client> clients_;  // until they are adopted
};

}  // namespace gpunbd::server
