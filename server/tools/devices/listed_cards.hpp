// A card that several drivers know is listed once for each of them.
#pragma once

#include <map>
#include <string>

#include "storage/devices/device.hpp"

namespace gpunbd::server {

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

}  // namespace gpunbd::server
