// One call of a copy engine in the making, for many copies (cuMemcpyBatchAsync).
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "storage/devices/channel.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

class EngineBatch {
 public:
    bool empty() const { return count_ == 0; }
    bool full() const { return count_ == max; }

    // `zeroes`: where those of a Copy::Kind::zero come from.
    void add(const Copy& copy, const std::byte* zeroes);
    // All that has been added, and none is left of it. If this fails, which of them were started is
    // not told.
    CUresult start(DeviceState::MemcpyBatch call, cudaStream_t stream);

 private:
    static constexpr std::size_t max = 32;  // long ones keep the answers of their first waiting

    std::size_t count_ = 0;
    std::array<CUdeviceptr, max> to_{};
    std::array<CUdeviceptr, max> from_{};
    std::array<std::size_t, max> lengths_{};
};

}  // namespace gpunbd::storage::cuda
