#include "server/exports/device_registry.hpp"
#include "storage/base/long_work.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>

namespace gpunbd::server {

namespace {

storage::GpuUse gpu_use(config::GpuUse wanted) {
    switch (wanted) {
        case config::GpuUse::automatic:
            break;
        case config::GpuUse::copy_engines:
            return storage::GpuUse::copy_engines;
        case config::GpuUse::all:
            return storage::GpuUse::all;
    }
    return storage::GpuUse::automatic;
}

}  // namespace

DeviceRegistry::DeviceRegistry(std::vector<config::DeviceOptions> options, bool calibrate,
                               Drivers drivers)
    : drivers_(drivers), options_(std::move(options)), calibrate_(calibrate) {}

config::DeviceOptions DeviceRegistry::options_of(const std::string& id) const {
    for (const config::DeviceOptions& options : options_) {
        if (options.id == id) return options;
    }
    config::DeviceOptions defaults;
    defaults.id = id;
    return defaults;
}

storage::Device& DeviceRegistry::open(const std::string& id) {
    for (const auto& device : devices_) {
        if (device->info().id == id) return *device;
    }
    const config::DeviceOptions options = options_of(id);
    devices_.push_back(open_anew(id, options));
    opened_with_.push_back(options);
    if (calibrate_) calibrate(*devices_.back());
    return *devices_.back();
}

storage::Device& DeviceRegistry::open_hardware(const std::string& identity,
                                               const std::string& likely) {
    std::vector<std::string> ids;
    if (!likely.empty()) ids.push_back(likely);
    for (const storage::DeviceDriver* driver : drivers_) {
        std::string why_none;
        for (std::string& id : driver->enumerate(why_none)) ids.push_back(std::move(id));
    }
    for (const std::string& id : ids) {
        try {
            storage::Device& device = open(id);
            if (device.info().identity == identity) return device;
        } catch (const std::runtime_error&) {
            // Try the other devices.
        }
    }
    throw std::runtime_error(fmt::format("they are on {}, which is not available", identity));
}

// Throws if there is no such device.
std::unique_ptr<storage::Device> DeviceRegistry::open_anew(const std::string& id,
                                                           const config::DeviceOptions& options) {
    for (const storage::DeviceDriver* driver : drivers_) {
        if (!driver->has_scheme_of(id)) continue;
        auto device = driver->open(id, static_cast<std::uint32_t>(devices_.size()),
                                   {.reserve = options.reserve,
                                    .capacity = options.capacity,
                                    .mapped = options.mapped,
                                    .gpu_use = gpu_use(options.gpu_use),
                                    .force = options.force});
        if (device) return device;
        break;
    }
    refuse_absent(id);
}

// The message lists it with the devices that exist.
void DeviceRegistry::refuse_absent(const std::string& id) const {
    std::string why_none;
    const std::vector<std::string> there = gpus(why_none);
    if (there.empty()) {
        throw std::runtime_error(fmt::format("{}: no GPU can be used: {}; choose {} instead", id,
                                             why_none, fmt::join(others(), " or ")));
    }
    throw std::runtime_error(fmt::format("{}: unknown GPU; choose one of {}, {}", id,
                                         fmt::join(others(), ", "), fmt::join(there, ", ")));
}

std::vector<std::string> DeviceRegistry::opened_otherwise() const {
    std::vector<std::string> ids;
    for (const config::DeviceOptions& options : opened_with_) {
        if (options_of(options.id) != options) ids.push_back(options.id);
    }
    return ids;
}

void DeviceRegistry::calibrate(storage::Device& device) {
    const storage::DeviceInfo& info = device.info();
    const auto saved = saved_calibrations_.find(info.identity);
    if (saved != saved_calibrations_.end() && device.restore_calibration(saved->second)) return;
    try {
        const storage::LongWork work("calibrating", info.id, 0, "bytes");
        calibrations_[info.id] = device.calibrate();
    } catch (const std::exception& error) {
        spdlog::warn("{}: calibration failed; the built-in choice of paths is used: {}", info.id,
                     error.what());
    }
}

std::map<std::string, std::string> DeviceRegistry::calibration_states() const {
    std::map<std::string, std::string> states = saved_calibrations_;
    for (const auto& device : devices_) {
        const std::string state = device->calibration_state();
        if (!state.empty()) states[device->info().identity] = state;
    }
    return states;
}

bool DeviceRegistry::lacks_mapping() const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [](const auto& device) { return device->lacks_mapping(); });
}

void DeviceRegistry::close() {
    devices_.clear();
    opened_with_.clear();
}

std::vector<const OwnedFd*> DeviceRegistry::mapping_files() const {
    std::vector<const OwnedFd*> files;
    for (const auto& device : devices_) {
        for (const OwnedFd& file : device->mapping_files()) files.push_back(&file);
    }
    return files;
}

std::string DeviceRegistry::calibration(const std::string& id) const {
    const auto found = calibrations_.find(id);
    return found == calibrations_.end() ? std::string() : found->second;
}

std::vector<int> DeviceRegistry::numa_nodes() const {
    std::vector<int> nodes;
    for (const auto& device : devices_) {
        const int node = device->info().numa_node;
        if (node >= 0 && std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
            nodes.push_back(node);
        }
    }
    return nodes;
}

std::vector<std::string> DeviceRegistry::gpus(std::string& why_none) const {
    return ids(true, why_none);
}

std::vector<std::string> DeviceRegistry::others() const {
    std::string why_none;
    return ids(false, why_none);
}

std::vector<std::string> DeviceRegistry::ids(bool of_gpus, std::string& why_none) const {
    std::vector<std::string> all;
    std::string reasons;
    for (const storage::DeviceDriver* driver : drivers_) {
        if (driver->drives_gpus() != of_gpus) continue;
        std::string reason;
        for (std::string& id : driver->enumerate(reason)) all.push_back(std::move(id));
        if (!reasons.empty() && !reason.empty()) reasons += "; ";
        reasons += reason;
    }
    if (all.empty()) why_none = std::move(reasons);
    return all;
}

std::vector<storage::DeviceInfo> DeviceRegistry::only_by_name() const {
    std::vector<storage::DeviceInfo> all;
    for (const storage::DeviceDriver* driver : drivers_) {
        for (storage::DeviceInfo& info : driver->only_by_name()) all.push_back(std::move(info));
    }
    return all;
}

}  // namespace gpunbd::server
