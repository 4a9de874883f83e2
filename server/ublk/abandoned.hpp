// Devices that a server has left or is about to leave. The kernel keeps those that are recoverable.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/ublk/control.hpp"

namespace gpunbd::server::ublk {

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
