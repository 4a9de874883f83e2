#include "storage/devices/vulkan/vulkan_state.hpp"

#include <algorithm>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint32_t max_slabs = 16384;  // 1 TiB in slabs of 64 MiB

}  // namespace

VulkanState::VulkanState(std::string device_id, GpuUse use,
                         std::shared_ptr<const Instance> instance, const PhysicalDevice& physical)
    : GpuState(std::move(device_id), use),
      device(std::move(instance), physical),
      slabs(std::min(physical.max_allocations, max_slabs)) {}

void VulkanState::report(VkResult error, std::string_view what) noexcept {
    log_if_possible([&] {
        const std::string text = vulkan::to_text(error);
        if (error == VK_ERROR_DEVICE_LOST) {
            fail(text, what);
            return;
        }
        LogLine(spdlog::level::err)
            .with("device", id)
            .with("error", text)
            .log("{}: {} failed: {}", id, what, text);
    });
    if (error == VK_ERROR_DEVICE_LOST) fail("VK_ERROR_DEVICE_LOST", what);  // if it had no text
}

void VulkanState::refuse(Copy& copy, VkResult error) noexcept {
    copy.status = Status::io_error;
    log_if_possible([&] { report(error, storage::to_text(copy)); });
    if (error == VK_ERROR_DEVICE_LOST) fail("VK_ERROR_DEVICE_LOST", "a copy");
}

}  // namespace gpunbd::storage::vulkan
