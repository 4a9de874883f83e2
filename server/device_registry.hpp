// The devices that are open in this process, by their ids. They live until it ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "storage/device.hpp"

namespace gpunbd::server {

class DeviceRegistry {
 public:
    explicit DeviceRegistry(std::vector<config::DeviceOptions> options);

    // Opens it on first use. Throws std::runtime_error with one clear line where there is no such
    // device or it cannot be used.
    storage::Device& open(const std::string& id);
    // The ids of the GPUs of this machine; empty: `why_none` says why.
    static std::vector<std::string> gpus(std::string& why_none);

    // What a configuration loaded later says of devices that are not open yet.
    void set_options(std::vector<config::DeviceOptions> options) { options_ = std::move(options); }

 private:
    config::DeviceOptions options_of(const std::string& id) const;

    std::vector<config::DeviceOptions> options_;
    std::vector<std::unique_ptr<storage::Device>> devices_;
};

}  // namespace gpunbd::server
