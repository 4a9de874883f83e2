#include "storage/devices/cuda/fault_check.hpp"

#include <new>

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

void FaultCheck::run() noexcept {
    constexpr const char* what = "no operation (detected by the device watch)";
    use_device(state_.ordinal);
    const cudaError_t error = cudaStreamQuery(stream_.get());
    if (error == cudaSuccess || error == cudaErrorNotReady) return;
    try {
        state_.fail(to_text(error), what);
    } catch (const std::bad_alloc&) {
        state_.fail("a CUDA error", what);
    }
}

}  // namespace gpunbd::storage::cuda
