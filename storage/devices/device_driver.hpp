// One kind of device: which of them this machine has, and how one is opened. What kinds there are
// is one table, storage/devices/drivers/device_drivers.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "storage/devices/device.hpp"
#include "storage/devices/gpu/competition.hpp"

namespace gpunbd::storage {

// A driver takes what concerns its devices.
struct DeviceOptions {
    std::optional<std::uint64_t> reserve = {};   // bytes left to the device's other users
    std::optional<std::uint64_t> capacity = {};  // bytes taken at most
    // Bytes mapped into the CPU's address space at most; 0: none, unset: what can be.
    std::optional<std::uint64_t> mapped = {};
    GpuUse gpu_use = GpuUse::automatic;
    bool force = false;  // whoever else uses it
};

// Another process has a device that only one can have.
class DeviceTaken : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

class DeviceDriver {
 public:
    DeviceDriver() = default;
    virtual ~DeviceDriver() = default;
    DeviceDriver(const DeviceDriver&) = delete;
    DeviceDriver& operator=(const DeviceDriver&) = delete;

    // What the ids of its devices are or begin with: "host", "cuda", "pci".
    virtual std::string_view scheme() const = 0;
    virtual bool drives_gpus() const = 0;
    // The ids of the devices that are there, and may be opened to see what they are. None:
    // `why_none` says why, and what to do about it.
    virtual std::vector<std::string> enumerate(std::string& why_none) const = 0;
    // What is told of devices that are opened only where they are named, since that changes what
    // they hold.
    virtual std::vector<DeviceInfo> only_by_name() const { return {}; }
    // Null: there is no such device. Throws std::runtime_error with one line that says what is
    // missing.
    virtual std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                         const DeviceOptions& options) const = 0;

    bool has_scheme_of(std::string_view id) const { return id.substr(0, id.find(':')) == scheme(); }
};

}  // namespace gpunbd::storage
