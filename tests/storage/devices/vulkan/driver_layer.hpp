// A layer over the Vulkan driver on the CPU, for tests: it changes what the driver reports, and
// makes its calls fail.
#pragma once

#include <vulkan/vulkan.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "storage/devices/device.hpp"
#include "storage/devices/device_driver.hpp"
#include "storage/devices/vulkan/physical_device.hpp"

namespace gpunbd::storage::vulkan::test {

// What the layer does. Set the members before the device is opened; the atomic ones at any time.
struct DriverChanges {
    // Applied to what the driver reports.
    std::function<void(PhysicalDevice&)> describe = {};
    std::optional<std::uint64_t> free_memory = {};  // as VK_EXT_memory_budget reports it
    // The memory types of all buffers, and of buffers with exported memory, a bit for each type
    // of `describe`. 0: those of the driver.
    std::uint32_t types = 0;
    std::uint32_t exported_types = 0;

    // The results of the next calls; VK_SUCCESS: those of the driver.
    std::atomic<VkResult> allocate{VK_SUCCESS};         // of all memory
    std::atomic<VkResult> allocate_mapped{VK_SUCCESS};  // of memory that is mapped afterwards
    std::atomic<VkResult> create_buffer{VK_SUCCESS};
    std::atomic<VkResult> submit{VK_SUCCESS};
    std::atomic<VkResult> counter{VK_SUCCESS};  // of the values of semaphores
    std::atomic<VkResult> compile{VK_SUCCESS};  // of shaders
    std::atomic<bool> garble{false};            // copies to the device are not made
    // The time of a fill that the device reports, in ticks: of imported host memory, and of other
    // memory.
    std::atomic<std::uint64_t> host_fill_ticks{1};
    std::atomic<std::uint64_t> fill_ticks{1};
};

// One at a time. The driver on the CPU is opened through it.
class DriverLayer {
 public:
    DriverLayer();
    DriverLayer(const DriverLayer&) = delete;
    DriverLayer& operator=(const DriverLayer&) = delete;
    ~DriverLayer();

    // Empty: there is a driver on the CPU. Otherwise why tests have to be skipped.
    const std::string& why_none() const { return why_none_; }
    // Throws what open_vulkan_device() throws.
    std::unique_ptr<Device> open(const DeviceOptions& options = {}, std::uint32_t number = 0);

    DriverChanges changes;

 private:
    std::shared_ptr<const Instance> instance_;
    std::optional<PhysicalDevice> physical_;
    std::string why_none_;
};

}  // namespace gpunbd::storage::vulkan::test

// Skips the test case if there is no driver on the CPU.
#define GPUNBD_LAYER(layer)                       \
    DriverLayer layer;                            \
    if (!layer.why_none().empty()) {              \
        MESSAGE("SKIPPED: " << layer.why_none()); \
        return;                                   \
    }
