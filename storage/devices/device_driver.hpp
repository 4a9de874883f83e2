// The interface of a device driver. The table of drivers is in
// storage/devices/drivers/device_drivers.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "config/devices/device_drivers.hpp"
#include "storage/devices/competition.hpp"
#include "storage/devices/device.hpp"
#include "storage/diagnosis/machine.hpp"

namespace gpunbd::storage {

// A driver ignores options that do not concern its devices.
struct DeviceOptions {
    std::optional<std::uint64_t> reserve = {};   // bytes left to other users of the device
    std::optional<std::uint64_t> capacity = {};  // the most bytes to allocate
    // The most bytes to map into the CPU's address space; 0: none; empty: as many as possible.
    std::optional<std::uint64_t> mapped = {};
    // The most bytes to allocate as revocable slabs; 2^64 - 1: as many as the device has.
    std::uint64_t revocable = 0;
    GpuUse gpu_use = GpuUse::automatic;
    bool force = false;  // even if others use the device
    bool encrypt =
        true;  // file devices: encrypt the contents with a key that exists only in memory
};

// Another process has opened an exclusive device.
class DeviceInUse : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

class DeviceDriver {
 public:
    DeviceDriver() = default;
    virtual ~DeviceDriver() = default;
    DeviceDriver(const DeviceDriver&) = delete;
    DeviceDriver& operator=(const DeviceDriver&) = delete;

    // The id of its device, or the start of its ids: "host", "cuda", "pci".
    virtual std::string_view scheme() const = 0;
    virtual bool drives_gpus() const = 0;
    // Describes the driver to the configuration; the caller adds its scheme.
    virtual config::DriverInfo info() const { return {}; }
    // The ids of existing devices, which may be opened to list them. If there are none, sets
    // `why_none` to the reason and the remedy.
    virtual std::vector<std::string> enumerate(std::string& why_none) const = 0;
    // The id of an existing device with this DeviceInfo::identity, which may be one that
    // enumerate() omits. Nullopt: unknown; the devices of enumerate() have to be opened.
    virtual std::optional<std::string> id_of(std::string_view /*identity*/) const {
        return std::nullopt;
    }
    // The devices that are opened only if they are named, because opening them changes their
    // contents.
    virtual std::vector<DeviceInfo> only_by_name() const { return {}; }
    // Checks for `gpunbd doctor` whether the machine is configured for the devices.
    virtual diagnosis::Diagnoses diagnose(const diagnosis::Machine&) const { return {}; }
    // Returns null if there is no such device. Throws std::runtime_error with one line about the
    // missing requirement.
    virtual std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                         const DeviceOptions& options) const = 0;

    bool has_scheme_of(std::string_view id) const { return id.substr(0, id.find(':')) == scheme(); }
};

}  // namespace gpunbd::storage
