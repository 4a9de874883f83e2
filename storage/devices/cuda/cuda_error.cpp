#include "storage/devices/cuda/cuda_error.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "storage/base/log_line.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::cuda {

void refuse(Copy& copy, cudaError_t error, DeviceState& state, cudaStream_t stream) {
    copy.status = Status::io_error;
    if (context_lost(stream)) {
        state.fail(cuda::to_text(error), to_text(copy));
        return;
    }
    const std::string reason = cuda::to_text(error);
    LogLine(spdlog::level::err)
        .with("device", state.id)
        .with("length", copy.length)
        .with("error", reason)
        .log("{}: {} was refused: {}", state.id, to_text(copy), reason);
}

void ask(DeviceState& state, cudaStream_t stream, const Copy* oldest) {
    if (oldest == nullptr) return;
    use_device(state.ordinal);
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaSuccess || error == cudaErrorNotReady) return;
    state.fail(cuda::to_text(error), to_text(*oldest));
}

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
