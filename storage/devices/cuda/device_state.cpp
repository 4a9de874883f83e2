#include "storage/devices/cuda/device_state.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

// The driver API version whose signatures these types have.
constexpr unsigned write_value_version = 12000;
constexpr unsigned memcpy_batch_version = 12080;

}  // namespace

void* driver_entry(const char* name, [[maybe_unused]] unsigned version) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) return entry;
    static_cast<void>(cudaGetLastError());
    return nullptr;
}

DeviceState::DeviceState(std::string device_id, int device_ordinal, GpuUse use)
    : GpuState(std::move(device_id), use), ordinal(device_ordinal) {
    check(use_device(ordinal), "the device cannot be used");
    constexpr const char* needed = "cuStreamWriteValue32";
    write_value = reinterpret_cast<WriteValue32>(driver_entry(needed, write_value_version));
    if (write_value == nullptr) {
        throw std::runtime_error(fmt::format("the driver has no {}: it is too old", needed));
    }
#if CUDART_VERSION >= 12080
    memcpy_batch =
        reinterpret_cast<MemcpyBatch>(driver_entry("cuMemcpyBatchAsync", memcpy_batch_version));
#endif
    zeroes = PinnedMemory(ordinal, zeroes_bytes, -1);
    std::memset(zeroes.get(), 0, zeroes_bytes);
}

cudaError_t DeviceState::zero(std::byte* device, std::uint64_t bytes,
                              cudaStream_t stream) const noexcept {
    if (competition.kernels_allowed()) return cudaMemsetAsync(device, 0, bytes, stream);
    cudaError_t error = cudaSuccess;
    for (std::uint64_t at = 0; at < bytes && error == cudaSuccess; at += zeroes_bytes) {
        const auto part = std::min<std::uint64_t>(bytes - at, zeroes_bytes);
        error = cudaMemcpyAsync(device + at, zeroes.get(), part, cudaMemcpyHostToDevice, stream);
    }
    return error;
}

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
