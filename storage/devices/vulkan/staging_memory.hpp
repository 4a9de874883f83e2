// Host memory that the CPU caches and the device copies from and to. The driver imports our own
// memory where it can; otherwise it is memory of the driver that stays mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "storage/assertions/assert.hpp"
#include "storage/base/private_memory.hpp"
#include "storage/devices/vulkan/buffer.hpp"

namespace gpunbd::storage::vulkan {

class StagingMemory {
 public:
    // Throws std::runtime_error, or std::bad_alloc. Zeroed. `bytes` is rounded up to memory pages.
    StagingMemory(LogicalDevice& device, std::size_t bytes);

    std::byte* get() const { return cpu_; }
    VkBuffer buffer() const { return buffer_.get(); }
    bool imported() const { return pages_ != nullptr; }
    std::uint64_t offset_of(const std::byte* place) const {
        GPUNBD_ASSERT(place >= cpu_, "copies are to and from the staging memory of their channel");
        return static_cast<std::uint64_t>(place - cpu_);
    }
    // In shaders.
    VkDeviceAddress address_of(const std::byte* place) const {
        return buffer_.address() + offset_of(place);
    }

 private:
    bool import_pages(LogicalDevice& device);

    std::unique_ptr<PrivateMemory> pages_;  // null: the driver allocated the memory
    std::byte* cpu_ = nullptr;
    Buffer buffer_;  // destroyed first
};

}  // namespace gpunbd::storage::vulkan
