#include "server/exports/device_registry.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "config/size.hpp"
#include "storage/base/long_work.hpp"

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

// The options with which a change of the others would need a restart.
config::DeviceOptions without_spill(config::DeviceOptions options) {
    options.keep_free = 0;
    options.reclaim_rate.reset();
    options.spill.clear();
    return options;
}

// The options of a device that is only spill memory; null: it is not.
const config::SpillOptions* spill_file(const std::vector<config::DeviceOptions>& options,
                                       const std::string& id) {
    const config::SpillOptions* found = nullptr;
    if (!config::is_spill_only(id)) return found;
    for (const config::DeviceOptions& each : options) {
        for (const config::SpillOptions& spill : each.spill) {
            if (spill.device == id) found = &spill;
        }
    }
    return found;
}

std::uint64_t spill_size(const std::vector<config::DeviceOptions>& options, const std::string& home,
                         const std::string& device) {
    for (const config::DeviceOptions& each : options) {
        if (each.id != home) continue;
        for (const config::SpillOptions& spill : each.spill) {
            if (spill.device == device) return spill.size;
        }
    }
    return 0;
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
    if (const config::SpillOptions* const spill = spill_file(options_, id)) {
        defaults.capacity = spill->size;
    }
    return defaults;
}

storage::Device& DeviceRegistry::open(const std::string& id) {
    for (const auto& [device, unused] : devices_) {
        if (device->info().id == id) return *device;
    }
    if (const auto alias = aliases_.find(id); alias != aliases_.end()) return *alias->second;
    config::DeviceOptions options = options_of(id);
    auto opened = open_anew(id, options);
    // A device may have several ids. It is opened with the settings of the first one.
    for (const auto& [device, unused] : devices_) {
        if (device->info().identity != opened->info().identity) continue;
        aliases_.emplace(id, device.get());
        return *device;
    }
    devices_.push_back({std::move(opened), std::move(options)});
    storage::Device& device = *devices_.back().device;
    if (calibrate_) calibrate(device);
    return device;
}

storage::Device& DeviceRegistry::open_hardware(const std::string& identity,
                                               const std::string& likely) {
    for (const auto& [device, unused] : devices_) {
        if (device->info().identity == identity) return *device;
    }
    std::vector<std::string> ids;
    if (!likely.empty()) ids.push_back(likely);
    for (const storage::DeviceDriver* driver : drivers_) {
        if (std::optional<std::string> id = driver->id_of(identity)) ids.push_back(std::move(*id));
    }
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
    const config::SpillOptions* const spill = spill_file(options_, id);
    for (const storage::DeviceDriver* driver : drivers_) {
        if (!driver->has_scheme_of(id)) continue;
        auto device = driver->open(id, static_cast<std::uint32_t>(devices_.size()),
                                   {.reserve = options.reserve,
                                    .capacity = options.capacity,
                                    .mapped = options.mapped,
                                    .revocable = options.revocable,
                                    .gpu_use = gpu_use(options.gpu_use),
                                    .force = options.force,
                                    .encrypt = spill == nullptr || spill->encrypt});
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
    for (const auto& [unused, options] : devices_) {
        if (without_spill(options_of(options.id)) != without_spill(options)) {
            ids.push_back(options.id);
        }
    }
    return ids;
}

std::vector<storage::Spill> DeviceRegistry::spills_of(
    const std::vector<storage::Device*>& devices) {
    std::vector<storage::Spill> spills;
    for (std::uint32_t home = 0; home != devices.size(); ++home) {
        const storage::Device& its_home = *devices[home];
        for (const config::SpillOptions& spill : options_of(its_home.info().id).spill) {
            storage::Device& device = open(spill.device);
            spills.push_back(
                {.home = home, .device = &device, .budget = &spill_budget(its_home, device)});
        }
    }
    return spills;
}

storage::SlabBudget& DeviceRegistry::spill_budget(const storage::Device& home,
                                                  const storage::Device& device) {
    const SpillKey key{home.info().id, device.info().id};
    const auto [found, added] = spill_budgets_.try_emplace(key, 0);
    if (added) found->second.set_limit(spill_size(options_, key.first, key.second));
    return found->second;
}

void DeviceRegistry::set_options(std::vector<config::DeviceOptions> options) {
    options_ = std::move(options);
    for (auto& [key, budget] : spill_budgets_) {
        budget.set_limit(spill_size(options_, key.first, key.second));
    }
}

std::vector<std::string> DeviceRegistry::spill_conflicts(
    const std::vector<config::DeviceOptions>& options) const {
    std::vector<std::string> conflicts;
    for (const auto& [key, budget] : spill_budgets_) {
        const auto& [home, device] = key;
        const std::uint64_t size = spill_size(options, home, device);
        const std::uint64_t used = budget.used();
        if (size >= std::min(used, budget.limit())) continue;
        conflicts.push_back(fmt::format(
            "devices: the spill {} of {} cannot be {}: it holds {}; run gpunbd reclaim {} --end "
            "first, which moves pages back",
            device, home, size == 0 ? "removed" : fmt::format("{}", config::human_size(size)),
            config::human_size(used), home));
    }
    return conflicts;
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
    for (const auto& [device, unused] : devices_) {
        const std::string state = device->calibration_state();
        if (!state.empty()) states[device->info().identity] = state;
    }
    return states;
}

bool DeviceRegistry::lacks_mapping() const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [](const auto& each) { return each.device->lacks_mapping(); });
}

void DeviceRegistry::close() {
    aliases_.clear();
    devices_.clear();
}

std::vector<const OwnedFd*> DeviceRegistry::mapping_files() const {
    std::vector<const OwnedFd*> files;
    for (const auto& [device, unused] : devices_) {
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
    for (const auto& [device, unused] : devices_) {
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

std::string DeviceRegistry::first_gpu(std::string& why_none) const {
    std::vector<std::string> found = ids(true, why_none, true);
    return found.empty() ? std::string() : std::move(found.front());
}

std::vector<std::string> DeviceRegistry::others() const {
    std::string why_none;
    return ids(false, why_none);
}

// `one_driver`: only those of the first driver that has any.
std::vector<std::string> DeviceRegistry::ids(bool of_gpus, std::string& why_none,
                                             bool one_driver) const {
    std::vector<std::string> all;
    std::string reasons;
    for (const storage::DeviceDriver* driver : drivers_) {
        if (driver->drives_gpus() != of_gpus) continue;
        if (one_driver && !all.empty()) break;
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
