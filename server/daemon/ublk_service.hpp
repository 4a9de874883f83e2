// The block devices of exports with `ublk`: made at the start, changed by reloads, and removed at
// the end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/handover/upgrade.hpp"
#include "server/ublk/device.hpp"

namespace gpunbd::server {

class UblkService final : public Service, public LocalDevices {
 public:
    UblkService(ServerContext& context, const WorkerPool& workers, ServerControl& control);

    void open() override;
    // Call it after an upgrade, before this server is active. Throws std::runtime_error if the
    // exports of this server would end a device of the predecessor that is in use.
    void check_takeover();
    void start() override;
    // Refuses changes for which a device that is in use would have to be removed.
    Commit reload(const config::Options& next, Problems& problems) override;
    void drain() override;
    void hand_over() override;
    void resume() override { poll_.resume(); }
    void stop() override;

    void pause_requests() override;
    bool paused() const override;
    void resume_requests() override;
    std::vector<std::uint32_t> ids() const;
    // The first device that a successor could not continue; null: it can continue all.
    const ublk::Device* bound_to_this_server() const;

    // Called when the server should end. Returns true while a device is in use whose contents would
    // be lost: it drains later.
    bool delays_end();
    // Devices are being removed, or have requests in flight.
    bool ending() const;
    // The next server continues them once this one has ended.
    bool left_devices() const;

 private:
    void apply();
    // Returns when the predecessor has left its devices. Removes those without an export.
    void finish_takeover();
    // Logs the devices of earlier servers that no export continues: programs that use them hang.
    void report_waiting();
    void make(const std::shared_ptr<const Export>& exported);
    bool has_device(const Export& exported) const;
    bool wait_until_unused();
    bool waits_for_next_server(const ublk::Device& device) const;
    // Devices in use that end with this server.
    std::vector<std::string> used_to_the_end() const;

    ServerContext& context_;
    const WorkerPool& workers_;
    ServerControl& server_;
    bool next_server_expected_;  // to which systemd passes the kept contents
    // While the machine shuts down: stops devices that are still in use.
    std::optional<std::chrono::steady_clock::time_point> stop_at_;
    std::unique_ptr<ublk::Control> control_;  // null: not needed so far
    std::vector<std::unique_ptr<ublk::Device>> devices_;
    // Ids of the predecessor's devices that no export continues.
    std::vector<std::uint32_t> surplus_;
    std::thread removal_;
    std::atomic<bool> removing_{false};
    Poll poll_;
};

}  // namespace gpunbd::server
