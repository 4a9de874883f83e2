// The `file:PATH` devices: pages that leave other devices are stored in a file. Its contents end
// with the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/devices/device.hpp"

namespace gpunbd::storage {

struct FileDeviceOptions {
    std::uint64_t capacity = 0;  // bytes
    bool encrypt = true;
    bool io_uring = true;  // false: threads, as where the system does not permit io_uring
};

// Throws DeviceInUse if another process uses the file, and std::runtime_error with one line if it
// cannot be used.
std::unique_ptr<Device> open_file_device(std::uint32_t number, const std::string& path,
                                         const FileDeviceOptions& options);

}  // namespace gpunbd::storage
