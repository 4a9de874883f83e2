// The devices that are open in this process, by id. They live until the process ends.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/drivers/device_drivers.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

class DeviceRegistry {
 public:
    using Drivers = std::span<const storage::DeviceDriver* const>;

    // `calibrate`: measure each GPU when it is opened, in under a second, to choose copy paths and
    // chunk size. Otherwise the built-in choice is used.
    DeviceRegistry(std::vector<config::DeviceOptions> options, bool calibrate,
                   Drivers drivers = storage::device_drivers());

    // Opens the device on first use. Throws std::runtime_error with a one-line message if it does
    // not exist or cannot be used.
    storage::Device& open(const std::string& id);
    // The device with this DeviceInfo::identity, whatever its id is now. `likely`: the id to try
    // first. Throws likewise.
    storage::Device& open_hardware(const std::string& identity, const std::string& likely);
    // The spill memory of these devices of a volume, in the order of the options. Opens its
    // devices. Throws likewise.
    std::vector<storage::Spill> spills_of(const std::vector<storage::Device*>& devices);
    // The budget for pages of `home` on `device`, which lives until the process ends. Its limit is
    // 0 unless the options have it.
    storage::SlabBudget& spill_budget(const storage::Device& home, const storage::Device& device);
    // Why spill memory cannot be as in these options, one line for each; pages are in it.
    std::vector<std::string> spill_conflicts(
        const std::vector<config::DeviceOptions>& options) const;
    // There is a device for which Device::lacks_mapping().
    bool lacks_mapping() const;
    // All open devices. Call before any is in use.
    void close();
    // The result of its calibration as text; empty if there was none.
    std::string calibration(const std::string& id) const;
    // The NUMA nodes of the open devices, without duplicates; empty if unknown.
    std::vector<int> numa_nodes() const;
    // The ids of the GPUs of this machine. Empty: `why_none` gets cause and remedy.
    std::vector<std::string> gpus(std::string& why_none) const;
    // The first of them, without asking the drivers behind its own. Empty: likewise.
    std::string first_gpu(std::string& why_none) const;
    // The ids of the other devices; the first one is used if there is no GPU.
    std::vector<std::string> others() const;
    // Devices of this machine that are opened only if a configuration names them.
    std::vector<storage::DeviceInfo> only_by_name() const;

    // Device::mapping_files() of all open devices.
    std::vector<const OwnedFd*> mapping_files() const;
    // Calibration results for a later process, by DeviceInfo::identity.
    std::map<std::string, std::string> calibration_states() const;
    // Results of an earlier process: these devices are not measured when they are opened.
    void set_calibration_states(std::map<std::string, std::string> states) {
        saved_calibrations_ = std::move(states);
    }

    // Options of a reloaded configuration: for devices that are not open yet, and for the sizes of
    // spill memory.
    void set_options(std::vector<config::DeviceOptions> options);
    // The ids of open devices that these options would change if they were opened again.
    std::vector<std::string> opened_otherwise() const;

 private:
    config::DeviceOptions options_of(const std::string& id) const;
    std::unique_ptr<storage::Device> open_anew(const std::string& id,
                                               const config::DeviceOptions& options);
    std::vector<std::string> ids(bool of_gpus, std::string& why_none,
                                 bool one_driver = false) const;
    [[noreturn]] void refuse_absent(const std::string& id) const;
    void calibrate(storage::Device& device);

    const Drivers drivers_;
    using SpillKey = std::pair<std::string, std::string>;  // the ids of the home and the device

    std::vector<config::DeviceOptions> options_;
    const bool calibrate_;
    struct OpenDevice {
        std::unique_ptr<storage::Device> device;
        config::DeviceOptions opened_with;
    };
    std::vector<OpenDevice> devices_;
    std::map<std::string, storage::Device*> aliases_;  // further ids of open devices
    std::map<SpillKey, storage::SlabBudget> spill_budgets_;
    std::map<std::string, std::string> calibrations_;  // as text, by id
    std::map<std::string, std::string> saved_calibrations_;
};

}  // namespace gpunbd::server
