#pragma once

#include <memory>
#include <vector>

#include "server/daemon/export_service.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/exports/export_registry.hpp"
#include "server/handover/kept_device_state.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Finishes the work that taking over has deferred, because it keeps the device busy: opens the
// channels of all workers, one after the other, then releases the mappings of the earlier server,
// then maps slabs. Mapping first would delay the opening of channels, and there may be no address
// space for both mappings.

// Returns immediately. `workers` and `mappings`, which is null if nothing is kept, must outlive the
// workers' threads.
void finish_taking_over(const std::vector<std::unique_ptr<Worker>>& workers,
                        const ExportRegistry::Exports& exports, KeptMappings* mappings);

// Takes over the contents, the connections and the service from the predecessor (see Predecessor).
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
    std::vector<Predecessor::Client> clients_;  // until they are taken over
};

}  // namespace gpunbd::server
