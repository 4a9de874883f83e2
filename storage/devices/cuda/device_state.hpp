#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/gpu/gpu_state.hpp"

namespace gpunbd::storage::cuda {

// Looks up functions of the CUDA driver at run time. The program does not link the driver, because
// the available functions depend on the version of the driver.

// The function in its form since that version of CUDA (12080 is 12.8). Null: the driver does not
// have it.
void* driver_entry(const char* name, unsigned version);

// State that a CUDA device shares with its channels.
struct DeviceState : GpuState {
    // cuStreamWriteValue32 of the driver, looked up at run time.
    using WriteValue32 = CUresult (*)(CUstream, CUdeviceptr, std::uint32_t, unsigned);

    // cuMemcpyBatchAsync of the driver, in its form since CUDA 12.8.
    using MemcpyBatch = CUresult (*)(CUdeviceptr* to, CUdeviceptr* from, std::size_t* lengths,
                                     std::size_t count, void* attributes,
                                     std::size_t* attribute_from, std::size_t attribute_count,
                                     std::size_t* failed, CUstream stream);
    static constexpr std::size_t zeroes_bytes = 1 << 20;

    // Throws std::runtime_error.
    DeviceState(std::string device_id, int device_ordinal, GpuUse use);

    int ordinal;
    int numa_node = -1;
    bool mapped = false;  // some slabs may be addressable by the CPU
    WriteValue32 write_value = nullptr;
    MemcpyBatch memcpy_batch = nullptr;  // null: the driver is too old
    // Pinned zeroes, zeroes_bytes long: copied when a memset is not allowed.
    PinnedMemory zeroes;
    // How many more channels may have a persistent kernel, and the number of its blocks.
    std::atomic<std::int32_t> persistent_kernel_slots{0};
    std::uint32_t persistent_kernel_blocks = 1;

    // Zeroes device memory in the order of the stream. A memset runs as a kernel, so zeroes are
    // copied while kernels are stopped.
    cudaError_t zero(std::byte* device, std::uint64_t bytes, cudaStream_t stream) const noexcept;
};

// Asks the driver whether the device has failed, for the watch of the device.
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
