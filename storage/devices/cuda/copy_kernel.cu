#include "storage/devices/cuda/copy_kernel.hpp"

#include "storage/devices/cuda/copy_unit.cuh"

namespace gpunbd::storage::cuda {

namespace {

// Launch parameters are sent with the launch. Descriptors in pinned memory would cost each block a
// bus round trip before its first load.
template <unsigned count>
struct Units {
    CopyUnit unit[count];
};

template <unsigned count>
__global__ void __launch_bounds__(copy_threads)
    copy_units(const __grid_constant__ Units<count> units, unsigned* blocks_done,
               volatile unsigned* counter, unsigned number) {
    copy_unit(units.unit[blockIdx.x]);
    // The barrier orders the block's stores before its first thread. The fence of that thread
    // orders them before its signal to the last block, whose fence orders all of them before the
    // number. So the number means to the CPU, and to later readers of device memory, that all bytes
    // have been copied.
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) {
        __threadfence_system();
        // Wraps to zero for the next launch on the stream.
        if (atomicInc(blocks_done, gridDim.x - 1) != gridDim.x - 1) return;
    }
    __threadfence_system();
    *counter = number;
}

template <unsigned count>
cudaError_t launch(const CopyUnit* units, unsigned blocks, unsigned* blocks_done, unsigned* counter,
                   unsigned number, cudaStream_t stream) {
    void* arguments[] = {const_cast<CopyUnit*>(units), &blocks_done, &counter, &number};
    return cudaLaunchKernel(reinterpret_cast<const void*>(copy_units<count>), dim3(blocks),
                            dim3(copy_threads), arguments, 0, stream);
}

}  // namespace

cudaError_t launch_copy_kernel(const CopyUnit* units, std::uint32_t count,
                               std::uint32_t* blocks_done, std::uint32_t* counter,
                               std::uint32_t number, cudaStream_t stream) noexcept {
    const auto launch_fitting = count <= 8    ? launch<8>
                                : count <= 40 ? launch<40>
                                              : launch<max_copy_units>;
    return launch_fitting(units, count, blocks_done, counter, number, stream);
}

}  // namespace gpunbd::storage::cuda
