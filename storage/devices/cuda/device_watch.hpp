// Notices that a device has failed while nothing asks it for anything: stores into a mapping raise
// no error, and would be acknowledged for ever.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

class DeviceWatch {
 public:
    // `state` outlives it. Throws std::runtime_error.
    explicit DeviceWatch(DeviceState& state);

 private:
    void watch(const std::stop_token& stop);

    DeviceState& state_;
    Stream stream_;
    std::mutex mutex_;
    std::condition_variable_any stopped_;
    std::jthread thread_;  // goes first
};

}  // namespace gpunbd::storage::cuda
