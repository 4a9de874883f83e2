// Detects device failures when no copy would: stores into a mapping raise no error, and writes
// would be acknowledged without an error.
#pragma once

#include <functional>
#include <thread>

#include "storage/base/mutex.hpp"
#include "storage/devices/gpu/gpu_state.hpp"

namespace gpunbd::storage {

class DeviceWatch {
 public:
    // Calls `check` from a thread of its own, four times a second until the device has failed. It
    // fails the device if that is lost, and does not throw. `state` outlives this object.
    DeviceWatch(const GpuState& state, std::function<void()> check);

 private:
    void watch(const std::stop_token& stop);

    const GpuState& state_;
    const std::function<void()> check_;
    Mutex mutex_;
    StoppableCondition stopped_;
    std::jthread thread_;  // destroyed first
};

}  // namespace gpunbd::storage
