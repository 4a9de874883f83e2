// Memory that outlives the process, because another process holds its descriptor.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "storage/base/mutex.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

class KeptMemory {
 public:
    // `state` outlives this object.
    KeptMemory(VulkanState& state, std::shared_ptr<const Instance> instance);

    // Why no memory can be kept; empty: it can. The first call proves it: it makes memory on a
    // device of its own, closes that device, and reads the memory. Any thread.
    std::string reason_not_kept();

    // Whether kept memory can be of this type. Any thread.
    bool allows(std::uint32_t type);

    // The memory of a buffer that is kept, and its descriptor.
    VkResult allocate(std::uint64_t bytes, std::uint32_t type, bool mapped, Buffer& out,
                      OwnedFd& descriptor);
    // The same memory in this process. The caller keeps the descriptor.
    VkResult take_over(const OwnedFd& descriptor, std::uint64_t bytes, std::uint32_t type,
                       bool mapped, Buffer& out);
    // Rejects descriptors that the driver must not be given. Empty: it may be the device's memory.
    std::string reason_not_memory(const OwnedFd& descriptor, std::uint64_t bytes) const;

 private:
    std::string prove();
    std::string reason_not_exported() const;
    static VkResult allocate_on(LogicalDevice& device, std::uint64_t bytes, std::uint32_t type,
                                bool mapped, Buffer& out, OwnedFd& descriptor);

    VulkanState& state_;
    const std::shared_ptr<const Instance> instance_;
    Mutex mutex_;
    std::optional<std::string> reason_ GUARDED_BY(mutex_);  // empty: not proven yet
    // A bit for each type; empty: not known yet.
    std::optional<std::uint32_t> types_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::storage::vulkan
