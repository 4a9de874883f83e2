// Asks the driver whether the device has failed, for the watch of the device.
#pragma once

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

class FaultCheck {
 public:
    // `state` outlives this object. Throws std::runtime_error.
    explicit FaultCheck(DeviceState& state)
        : state_(state), stream_(state.ordinal, Stream::Priority::normal) {}

    // Fails the device if it is lost.
    void run() noexcept;

 private:
    DeviceState& state_;
    Stream stream_;
};

}  // namespace gpunbd::storage::cuda
