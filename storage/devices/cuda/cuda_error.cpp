#include "storage/devices/cuda/cuda_error.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace gpunbd::storage::cuda {

std::string to_text(cudaError_t error) {
    return fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
}

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    throw std::runtime_error(fmt::format("{}: {}", what, to_text(error)));
}

cudaError_t use_device(int ordinal) noexcept {
    thread_local int current = -1;
    if (current == ordinal) return cudaSuccess;
    const cudaError_t error = cudaSetDevice(ordinal);
    current = error == cudaSuccess ? ordinal : -1;
    return error;
}

bool context_lost(cudaStream_t stream) noexcept {
    static_cast<void>(cudaGetLastError());
    const cudaError_t error = cudaStreamQuery(stream);
    return error != cudaSuccess && error != cudaErrorNotReady;
}

}  // namespace gpunbd::storage::cuda
