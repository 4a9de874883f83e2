#pragma once

#include <map>
#include <string>

#include "config/command_line/command.hpp"
#include "storage/devices/device.hpp"

namespace gpunbd::server {

// A card that several drivers know is listed once for each of them.
class ListedCards {
 public:
    // Adds a device. Returns the ids of the same card that were added before, with commas.
    std::string add(const storage::DeviceInfo& info) {
        if (info.hardware.empty()) return {};
        std::string& ids = ids_[info.hardware];
        std::string before = ids;
        ids += (ids.empty() ? "" : ", ") + info.id;
        return before;
    }

 private:
    std::map<std::string, std::string> ids_;  // by DeviceInfo::hardware
};

// `gpunbd devices`.

// Prints the host, every GPU and the ublk devices to standard output, as text or as an object.
// Returns the exit code.
int list_devices(bool calibrate, bool as_json);

}  // namespace gpunbd::server

namespace gpunbd::tools {

// `gpunbd devices`
class DevicesCommand final : public config::Command {
 public:
    DevicesCommand();
    int run(const config::Commands& all) override;

    bool calibrate = false;
    bool json = false;
};

}  // namespace gpunbd::tools
