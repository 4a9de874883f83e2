// How VulkanDevice measures its copy paths.
#include <fmt/format.h>

#include "storage/devices/gpu/measured_calibration.hpp"
#include "storage/devices/vulkan/vulkan_channel.hpp"
#include "storage/devices/vulkan/vulkan_device_class.hpp"

namespace gpunbd::storage::vulkan {

std::string VulkanDevice::calibrate() {
    if (in_place_) return {};
    const MeasuredCalibration found = measure_calibration(
        {.device = *this,
         .open_channel =
             [this](const ChannelOptions& options) { return open_vulkan_channel(options); },
         .kernels_allowed = [this] { return state_.competition.kernels_allowed(); },
         .kernel = shader_.has_value()});
    calibration_ = found.calibration;
    // A disturbed measurement is not saved, so that the next process measures again.
    const bool lasts = !found.disturbed || options_.gpu_use == GpuUse::copy_engines;
    calibration_state_ = lasts ? saved(calibration_, circumstances()) : std::string();
    return found.text;
}

bool VulkanDevice::restore_calibration(std::string_view state) {
    const std::optional<Calibration> found = read_calibration(state, circumstances());
    if (!found) return false;
    calibration_ = *found;
    calibration_state_ = state;
    return true;
}

std::string VulkanDevice::circumstances() const {
    return fmt::format("Vulkan, {}, {}, {}, {}, {}, gpu_use {}", info_.name, info_.link,
                       info_.driver, memory().mapped_type ? "mappable" : "not mappable",
                       shader_ ? "shader" : "no shader", to_text(options_.gpu_use));
}

}  // namespace gpunbd::storage::vulkan
