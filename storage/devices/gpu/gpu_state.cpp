#include "storage/devices/gpu/gpu_state.hpp"

#include <utility>

#include "storage/base/log_line.hpp"

namespace gpunbd::storage {

GpuState::GpuState(std::string device_id, GpuUse use)
    : id(std::move(device_id)), competition(use) {}

void GpuState::fail(std::string_view error, std::string_view what) noexcept {
    if (failed_.exchange(true, std::memory_order_acq_rel)) return;
    try {
        LogLine(spdlog::level::critical)
            .with("device", id)
            .with("error", error)
            .log("{}: the device has failed permanently, during {}: {}", id, what, error);
    } catch (...) {  // the flag matters, not the log line
    }
}

}  // namespace gpunbd::storage
