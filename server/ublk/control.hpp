// The commands on /dev/ublk-control. Each blocks until the kernel has executed it.
#pragma once

#include <liburing.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/ublk/kernel_interface.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server::ublk {

class Control {
 public:
    static constexpr const char* path = "/dev/ublk-control";

    // Throws std::runtime_error with the reason and the remedy, also if the kernel lacks a feature
    // that this server needs.
    Control();
    // Null: this process cannot control devices.
    static std::unique_ptr<Control> open_if_permitted();
    ~Control();
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

    // All others return 0 or a negative errno.
    int add(DeviceInfo& info);
    int set_parameters(std::uint32_t id, const Parameters& parameters);
    // Return once each queue has fetched its requests and the kernel has read the partition table.
    int start(std::uint32_t id);
    int end_recovery(std::uint32_t id);
    // Without a server: its next server may take over.
    int start_recovery(std::uint32_t id);
    // Writes dirty pages back, then removes the block device. The queues must be served until then.
    int stop(std::uint32_t id);
    // The character device must be closed.
    int remove(std::uint32_t id);
    // Empty: there is no such device.
    std::optional<DeviceInfo> info(std::uint32_t id);

 private:
    int execute(std::uint32_t operation, const ControlCommand& command);
    void check_features();

    OwnedFd file_;
    io_uring ring_{};
};

// Why this process cannot make ublk devices, with the remedy; empty: it can.
std::string reason_unavailable();

// Devices that a server has left or is about to leave. The kernel keeps those that are recoverable.

// The kernel notices the end of a server some time later. Ask it at this interval, not longer than
// this.
constexpr auto settling_interval = std::chrono::milliseconds(2);
constexpr auto settling_patience = std::chrono::seconds(10);

std::string block_path(std::uint32_t id);
std::string character_path(std::uint32_t id);

// The ids of all ublk block devices of this machine, in ascending order.
std::vector<std::uint32_t> existing_ids();

// A mount, swap, or another device holds the block device; also if that cannot be found out.
bool in_use(std::uint32_t id);
// A server holds the character device open, also before it starts the block device. Only one can.
bool has_server(std::uint32_t id);

// The device, once its state is that after the end of its server. Returns at once if the server
// lives, unless it `leaves`.
std::optional<DeviceInfo> settled_info(Control& control, std::uint32_t id, bool leaves);
// Removes a device without a server. Requests that wait in it fail. Returns 0 or a negative errno.
int remove_abandoned(Control& control, std::uint32_t id);

}  // namespace gpunbd::server::ublk
