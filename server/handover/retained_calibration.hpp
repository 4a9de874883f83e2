// What calibrating the devices has found, kept by the supervisor: a server that comes back measures
// nothing again.
#pragma once

#include <map>
#include <string>

#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/inherited_descriptors.hpp"

namespace gpunbd::server {

class RetainedCalibration {
 public:
    using States = std::map<std::string, std::string>;  // DeviceRegistry::calibration_states()

    // Takes what an earlier server has stored out of `handed_over`. The store outlives this.
    RetainedCalibration(DescriptorStore& store, InheritedDescriptors& handed_over);

    // Empty, where there is nothing, or nothing that makes sense.
    const States& states() const { return states_; }
    // Instead of what is kept, where that differs.
    void keep(const States& states);

 private:
    DescriptorStore& store_;
    States states_;
};

}  // namespace gpunbd::server
