#include "storage/devices/cuda/copy_errors.hpp"

#include <string>

#include "storage/base/log_line.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
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

}  // namespace gpunbd::storage::cuda
