#include "storage/devices/cuda/device_state.hpp"

#include <stdexcept>

#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/log_line.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr unsigned entry_version = 12000;  // of the driver API, whose signature the type above has

void* driver_entry(const char* name) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &entry, entry_version, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    check(error, "the driver's functions cannot be looked up");
    if (found != cudaDriverEntryPointSuccess || entry == nullptr) {
        throw std::runtime_error(fmt::format("the driver has no {}: it is too old", name));
    }
    return entry;
}

}  // namespace

DeviceState::DeviceState(int device_ordinal)
    : ordinal(device_ordinal), id(fmt::format("cuda:{}", device_ordinal)) {
    check(use_device(ordinal), "the device cannot be used");
    write_value = reinterpret_cast<WriteValue32>(driver_entry("cuStreamWriteValue32"));
}

void DeviceState::fail(std::string_view error, std::string_view what) noexcept {
    if (failed_.exchange(true, std::memory_order_acq_rel)) return;
    try {
        LogLine(spdlog::level::critical)
            .with("device", id)
            .with("error", error)
            .say("{}: the device has failed for good, during {}: {}", id, what, error);
    } catch (...) {  // the flag is what counts
    }
}

}  // namespace gpunbd::storage::cuda
