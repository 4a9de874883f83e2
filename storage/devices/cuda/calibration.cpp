// How CudaDevice measures its copy paths.
#include <fmt/format.h>

#include "storage/devices/cuda/cuda_channel.hpp"
#include "storage/devices/cuda/cuda_device_class.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/gpu/measured_calibration.hpp"

namespace gpunbd::storage::cuda {

std::string CudaDevice::calibrate() {
    const MeasuredCalibration found = measure_calibration(
        {.device = *this,
         .open_channel =
             [this](const ChannelOptions& options) { return open_cuda_channel(options); },
         .kernels_allowed = [this] { return state_.competition.kernels_allowed(); },
         .persistent_kernel = true,
         .engine_batch = state_.memcpy_batch != nullptr});
    calibration_ = found.calibration;
    // A disturbed measurement is not saved, so that the next process measures again.
    const bool lasts = !found.disturbed || options_.gpu_use == GpuUse::copy_engines;
    calibration_state_ = lasts ? saved(calibration_, circumstances()) : std::string();
    return found.text;
}

bool CudaDevice::restore_calibration(std::string_view state) {
    const std::optional<Calibration> found = read_calibration(state, circumstances());
    if (!found) return false;
    calibration_ = *found;
    calibration_state_ = state;
    return true;
}

std::string CudaDevice::circumstances() const {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "the version of the driver cannot be determined");
    return fmt::format("{}, {}, driver {}, {}, gpu_use {}", info_.name, info_.link, driver,
                       state_.mapped ? "mapped" : "not mapped", to_text(options_.gpu_use));
}

}  // namespace gpunbd::storage::cuda
