// Detects device failures when no copy would: stores into a mapping raise no error, and writes
// would be acknowledged without an error.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

class DeviceWatch {
 public:
    // `state` outlives this object. Throws std::runtime_error.
    explicit DeviceWatch(DeviceState& state);

 private:
    void watch(const std::stop_token& stop);

    DeviceState& state_;
    Stream stream_;
    std::mutex mutex_;
    std::condition_variable_any stopped_;
    std::jthread thread_;  // destroyed first
};

}  // namespace gpunbd::storage::cuda
