// The devices that are open in this process, by their ids. They live until it ends.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/drivers/device_drivers.hpp"

namespace gpunbd::server {

class DeviceRegistry {
 public:
    using Drivers = std::span<const storage::DeviceDriver* const>;

    // `calibrate`: measure each GPU when it is opened, in under a second, and choose its copy paths
    // and chunk size by that; else the built-in choice stands.
    DeviceRegistry(std::vector<config::DeviceOptions> options, bool calibrate,
                   Drivers drivers = storage::device_drivers());

    // Opens it on first use. Throws std::runtime_error with one clear line where there is no such
    // device or it cannot be used.
    storage::Device& open(const std::string& id);
    // The one of that DeviceInfo::identity, whatever its id is now; the one with the id `likely`,
    // if it is that. Throws likewise.
    storage::Device& open_hardware(const std::string& identity, const std::string& likely);
    // There is one without room for its mapping: Device::lacks_mapping().
    bool lacks_mapping() const;
    // All that are open, which nobody uses yet.
    void close();
    // What its calibration found, for people; empty where there was none.
    std::string calibration(const std::string& id) const;
    // Of the open devices, each once; empty where none is known.
    std::vector<int> numa_nodes() const;
    // The ids of the GPUs of this machine; empty: `why_none` says why,
    // and what to do about it.
    std::vector<std::string> gpus(std::string& why_none) const;
    // Those of this machine that are opened only where a configuration names them.
    std::vector<storage::DeviceInfo> only_by_name() const;

    // Device::mapping_files() of all that are open.
    std::vector<int> mapping_files() const;
    // What calibrating has found, for a later process, by DeviceInfo::identity.
    std::map<std::string, std::string> calibration_states() const;
    // What an earlier process had: a device of which it holds is not measured when it is opened.
    void set_calibration_states(std::map<std::string, std::string> states) {
        saved_calibrations_ = std::move(states);
    }

    // What a configuration loaded later says of devices that are not open yet.
    void set_options(std::vector<config::DeviceOptions> options) { options_ = std::move(options); }
    // The ids of open devices that those options would change, if they were opened anew.
    std::vector<std::string> opened_otherwise() const;

 private:
    config::DeviceOptions options_of(const std::string& id) const;
    std::unique_ptr<storage::Device> open_anew(const std::string& id,
                                               const config::DeviceOptions& options);
    [[noreturn]] void refuse_absent(const std::string& id) const;
    void calibrate(storage::Device& device);

    const Drivers drivers_;
    std::vector<config::DeviceOptions> options_;
    const bool calibrate_;
    std::vector<std::unique_ptr<storage::Device>> devices_;
    std::vector<config::DeviceOptions> opened_with_;   // one for each of devices_
    std::map<std::string, std::string> calibrations_;  // for people, by id
    std::map<std::string, std::string> saved_calibrations_;
};

}  // namespace gpunbd::server
