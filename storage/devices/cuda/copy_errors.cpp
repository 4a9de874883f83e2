#include "storage/devices/cuda/copy_errors.hpp"

#include <fmt/format.h>

#include "storage/base/log_line.hpp"
#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

const char* name_of(Copy::Kind kind) {
    switch (kind) {
        case Copy::Kind::read:
            return "read";
        case Copy::Kind::write:
            return "write";
        case Copy::Kind::zero:
            return "zeroing";
    }
    return "copy";
}

}  // namespace

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
        .say("{}: {} was refused: {}", state.id, to_text(copy), reason);
}

void ask(DeviceState& state, cudaStream_t stream, const Copy* oldest) {
    if (oldest == nullptr) return;
    use_device(state.ordinal);
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaSuccess || error == cudaErrorNotReady) return;
    state.fail(cuda::to_text(error), to_text(*oldest));
}

std::string to_text(const Copy& copy) {
    return fmt::format("a {} of {} bytes at device address {:#x}", name_of(copy.kind), copy.length,
                       copy.address);
}

}  // namespace gpunbd::storage::cuda
