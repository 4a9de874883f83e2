// The `host` device: private memory, and memory files for slabs that are kept, in huge pages where
// the kernel gives them. Payload is received straight into its pages and sent straight from them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "storage/devices/device.hpp"

namespace gpunbd::storage {

struct HostDeviceOptions {
    std::optional<std::uint64_t>
        reserve;  // bytes left to others, of the machine and of each control group
    std::optional<std::uint64_t> capacity;  // bytes taken at most
    std::filesystem::path root = "/";       // where /proc and /sys tell what there is
};

std::unique_ptr<Device> open_host_device(std::uint32_t number, const HostDeviceOptions& options);

}  // namespace gpunbd::storage
