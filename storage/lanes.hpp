// One worker's lanes, one to each device it has met.
#pragma once

#include <memory>
#include <vector>

#include "storage/device.hpp"

namespace gpunbd::storage {

class Lanes {
 public:
    explicit Lanes(const LaneOptions& options) : options_(options) {}

    // Opens the lane if need be; throws as Device::open_lane() does. Once for each device before a
    // transfer touches it.
    void open(Device& device);
    Lane& to(const Device& device) { return *by_number_[device.number()]; }

    void turn() {
        for (Lane* lane : open_) lane->turn();
    }
    bool busy() const {
        for (const Lane* lane : open_) {
            if (lane->busy()) return true;
        }
        return false;
    }
    void fence() {
        for (Lane* lane : open_) lane->fence();
    }

 private:
    LaneOptions options_;
    std::vector<std::unique_ptr<Lane>> by_number_;
    std::vector<Lane*> open_;
};

}  // namespace gpunbd::storage
