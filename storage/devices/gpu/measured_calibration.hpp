// Measures the copy paths of a GPU, for any driver.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "storage/devices/device.hpp"
#include "storage/devices/gpu/gpu_channel.hpp"
#include "storage/devices/gpu/saved_calibration.hpp"

namespace gpunbd::storage {

// The device to measure. Everything outlives the measurement.
struct CalibratedDevice {
    Device& device;
    std::function<std::unique_ptr<GpuChannel>(const ChannelOptions&)> open_channel;
    std::function<bool()> kernels_allowed;
    // The paths that the driver has.
    bool kernel = true;
    bool persistent_kernel = false;
    bool engine_batch = false;
};

struct MeasuredCalibration {
    Calibration calibration;
    std::string text;  // human-readable
    // Kernels could not be timed, for example because another program computed on the GPU, and the
    // policy is the default one.
    bool disturbed = false;
};

// Takes about a second. Throws std::runtime_error.
MeasuredCalibration measure_calibration(const CalibratedDevice& device);

}  // namespace gpunbd::storage
