#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "storage/devices/device.hpp"
#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

// The driver of the `host` device.

const DeviceDriver& host_driver();

// The `host` device: private memory, or memory files for kept slabs, in huge pages if the kernel
// has them. Payload is received directly into pages and sent directly from them.
struct HostDeviceOptions {
    std::optional<std::uint64_t>
        reserve;  // bytes left to others, of the machine and of each control group
    std::optional<std::uint64_t> capacity;  // the most bytes to allocate
    std::filesystem::path root = "/";       // where /proc and /sys are found
};

std::unique_ptr<Device> open_host_device(std::uint32_t number, const HostDeviceOptions& options);

}  // namespace gpunbd::storage
