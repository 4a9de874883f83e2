// Stores the results of calibrating the devices with the supervisor, so that a restarted server
// need not calibrate.
#pragma once

#include <map>
#include <string>

#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/passed_descriptors.hpp"

namespace gpunbd::server {

class KeptCalibration {
 public:
    using States = std::map<std::string, std::string>;  // DeviceRegistry::calibration_states()

    // Takes the data of an earlier server out of `handed_over`. The store outlives this object.
    KeptCalibration(DescriptorStore& store, PassedDescriptors& handed_over);

    // Empty if there are no valid data.
    const States& states() const { return states_; }
    // Replaces the stored states if they differ.
    void keep(const States& states);

 private:
    DescriptorStore& store_;
    States states_;
};

}  // namespace gpunbd::server
