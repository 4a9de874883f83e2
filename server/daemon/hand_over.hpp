#pragma once

#include <chrono>
#include <cstdint>
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
#include "server/daemon/service.hpp"
#include "server/daemon/ublk_service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/handover/upgrade.hpp"
#include "storage/base/long_work.hpp"

namespace gpunbd::server {

// Waits until the connections of a server that drains have ended, and ends the event loop.
class Drain final : public Service {
 public:
    Drain(ServerContext& context, const WorkerPool& workers, const ServerControl& control);

    void drain() override;
    void hand_over() override { drain(); }
    void resume() override { poll_.resume(); }

    // Closes the remaining connections.
    void expire() { deadline_ = std::chrono::steady_clock::now(); }

 private:
    // Returns true if connections remain.
    bool wait();

    ServerContext& context_;
    const WorkerPool& workers_;
    const ServerControl& control_;
    Poll poll_;
    std::chrono::steady_clock::time_point deadline_;
    std::optional<storage::LongWork> work_;
    std::uint64_t total_ = 0;  // connections at the start of draining
};

// On SIGUSR2: starts a successor and hands everything over to it (see Upgrade).
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
    bool writes_of_removed_exports() const;
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
