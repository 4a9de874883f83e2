// Builds one copy engine call for many copies (cuMemcpyBatchAsync).
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

    // `zeroes` is the source for a Copy::Kind::zero.
    void add(const Copy& copy, const std::byte* zeroes);
    // Starts everything that was added and clears the batch. After a failure it is unknown which
    // copies were started.
    CUresult start(DeviceState::MemcpyBatch call, cudaStream_t stream);

 private:
    static constexpr std::size_t max =
        32;  // in longer batches, the first copies would wait too long

    std::size_t count_ = 0;
    std::array<CUdeviceptr, max> to_{};
    std::array<CUdeviceptr, max> from_{};
    std::array<std::size_t, max> lengths_{};
};

}  // namespace gpunbd::storage::cuda
