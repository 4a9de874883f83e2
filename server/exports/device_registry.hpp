// The devices that are open in this process, by their ids. They live until it ends.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "storage/devices/device.hpp"

namespace gpunbd::server {

class DeviceRegistry {
 public:
    // `calibrate`: measure each GPU when it is opened, in under a second, and choose its copy paths
    // and chunk size by that; else the built-in choice stands.
    DeviceRegistry(std::vector<config::DeviceOptions> options, bool calibrate);

    // Opens it on first use. Throws std::runtime_error with one clear line where there is no such
    // device or it cannot be used.
    storage::Device& open(const std::string& id);
    // What its calibration found, for people; empty where there was none.
    std::string calibration(const std::string& id) const;
    // Of the open devices, each once; empty where none is known.
    std::vector<int> numa_nodes() const;
    // The ids of the GPUs of this machine; empty: `why_none` says why,
    // and what to do about it.
    static std::vector<std::string> gpus(std::string& why_none);

    // What a configuration loaded later says of devices that are not open yet.
    void set_options(std::vector<config::DeviceOptions> options) { options_ = std::move(options); }
    // The ids of open devices that those options would change, if they were opened anew.
    std::vector<std::string> opened_otherwise() const;

 private:
    config::DeviceOptions options_of(const std::string& id) const;
    void calibrate(storage::Device& device);

    std::vector<config::DeviceOptions> options_;
    const bool calibrate_;
    std::vector<std::unique_ptr<storage::Device>> devices_;
    std::vector<config::DeviceOptions> opened_with_;  // one for each of devices_
    std::map<std::string, std::string> calibrations_;
};

}  // namespace gpunbd::server
