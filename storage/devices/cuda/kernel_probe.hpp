// A tiny kernel, launched alone, for the watch that looks for other programs on the GPU.
#pragma once

#include <cstdint>

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

// For one thread.
class KernelProbe {
 public:
    // `state` outlives this object. Throws std::runtime_error.
    explicit KernelProbe(DeviceState& state);

    bool launch();
    bool ended() const;

 private:
    DeviceState& state_;
    PinnedMemory word_;
    DeviceMemory scratch_;
    Stream stream_;  // destroyed first
    std::uint32_t number_ = 0;
};

}  // namespace gpunbd::storage::cuda
