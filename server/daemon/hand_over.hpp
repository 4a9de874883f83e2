// On SIGUSR2: starts a successor and hands everything over to it (see Upgrade).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/base/task.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/listeners.hpp"
#include "server/daemon/reclaim_service.hpp"
#include "server/daemon/saves.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/server_control.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/ublk_service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/handover/upgrade.hpp"

namespace gpunbd::server {

class HandOver final : public Service {
 public:
    struct Parts {
        const WorkerPool& workers;
        const ExportService& exports;
        const Saves& saves;
        const Listeners& listeners;
        ReclaimService& reclaim;
        UblkService& ublk;
    };
    HandOver(ServerContext& context, const Parts& parts, ServerControl& control);

    void drain() override { cancel(); }
    void stop() override { tasks_.clear(); }

    void begin();
    void cancel();

 private:
    // Returns the reason why a hand-over is not possible now; empty: it is possible.
    std::string obstacle() const;
    std::vector<UpgradeMessage> first_messages() const;
    Task<> hand_over_to_successor();
    // This server continues to serve.
    void give_up();

    ServerContext& context_;
    const Parts parts_;
    ServerControl& control_;
    const std::string program_;  // set at the start, because the file can be replaced
    std::optional<Upgrade> upgrade_;
    TaskGroup tasks_;
};

}  // namespace gpunbd::server
