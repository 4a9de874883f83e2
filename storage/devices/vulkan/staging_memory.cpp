#include "storage/devices/vulkan/staging_memory.hpp"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "storage/devices/vulkan/logical_device.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::size_t memory_page = 64 << 10;  // bytes: a multiple of the pages of all systems

}  // namespace

StagingMemory::StagingMemory(LogicalDevice& device, std::size_t bytes)
    : pages_(
          std::make_unique<PrivateMemory>((bytes + memory_page - 1) / memory_page * memory_page)) {
    // The driver could block its other calls while it waits for new pages of memory.
    std::memset(pages_->data(), 0, pages_->size());
    if (import_pages(device)) return;
    const std::size_t size = std::exchange(pages_, nullptr)->size();
    const auto type = device.memory().staging_type;
    if (!type) throw std::runtime_error("it has no host memory that the CPU caches");
    const VkResult result =
        Buffer::make(device, {.bytes = size, .type = *type, .mapped = true}, buffer_);
    if (result != VK_SUCCESS) {
        throw std::runtime_error(fmt::format("no staging memory: {}", to_text(result)));
    }
    cpu_ = buffer_.cpu();
    std::memset(cpu_, 0, size);
}

bool StagingMemory::import_pages(LogicalDevice& device) {
    constexpr VkExternalMemoryHandleTypeFlagBits handle_type =
        VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    const auto properties_of = device.functions().GetMemoryHostPointerPropertiesEXT;
    const std::uint64_t alignment = device.physical().host_import_alignment;
    if (properties_of == nullptr || alignment == 0 || pages_->size() % alignment != 0 ||
        reinterpret_cast<std::uintptr_t>(pages_->data()) % alignment != 0) {
        return false;
    }
    VkMemoryHostPointerPropertiesEXT properties{};
    properties.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT;
    if (properties_of(device.get(), handle_type, pages_->data(), &properties) != VK_SUCCESS) {
        return false;
    }
    const auto type = cached_host_type(device.physical().memory, properties.memoryTypeBits);
    if (!type) return false;
    VkImportMemoryHostPointerInfoEXT imported{};
    imported.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT;
    imported.handleType = handle_type;
    imported.pHostPointer = pages_->data();
    if (Buffer::make(device,
                     {.bytes = pages_->size(),
                      .type = *type,
                      .handle_type = handle_type,
                      .imported = &imported},
                     buffer_) != VK_SUCCESS) {
        return false;
    }
    cpu_ = pages_->data();
    return true;
}

}  // namespace gpunbd::storage::vulkan
