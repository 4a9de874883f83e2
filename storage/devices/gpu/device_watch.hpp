// Detects device failures when no copy would: stores into a mapping raise no error, and writes
// would be acknowledged without an error.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

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
    std::mutex mutex_;
    std::condition_variable_any stopped_;
    std::jthread thread_;  // destroyed first
};

}  // namespace gpunbd::storage
