// The `vulkan:N` devices: memory of any GPU that has a Vulkan driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/devices/device.hpp"
#include "storage/devices/device_driver.hpp"
#include "storage/devices/vulkan/base/instance.hpp"
#include "storage/devices/vulkan/physical_device.hpp"

namespace gpunbd::storage::vulkan {

// Without the facts that only opening the device reveals.
DeviceInfo describe(const PhysicalDevice& physical);

// `id`: DeviceInfo::id of the device. Throws std::runtime_error with one line.
std::unique_ptr<Device> open_vulkan_device(std::uint32_t number, const std::string& id,
                                           std::shared_ptr<const Instance> instance,
                                           const PhysicalDevice& physical,
                                           const DeviceOptions& options);

}  // namespace gpunbd::storage::vulkan
