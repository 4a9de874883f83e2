#include "storage/devices/cuda/mapped_memory.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace gpunbd::storage::cuda {

namespace {

// Duplicates the descriptor, since an import takes ownership. On failure returns none and sets
// `reason`.
OwnedFd another(const OwnedFd& descriptor, std::string& reason) {
    OwnedFd copy = OwnedFd::copy_of(descriptor);
    if (!copy) reason = std::strerror(errno);
    return copy;
}

bool import_export(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, OwnedFd* kept,
                   MappedMemory& memory, std::string& reason) {
    OwnedFd descriptor = vulkan.export_descriptor(memory.mapping, reason);
    if (!descriptor) return false;
    OwnedFd copy;
    if (kept != nullptr && !(copy = another(descriptor, reason))) return false;
    if (!import_opaque(std::move(descriptor), bytes, memory.opaque, reason)) return false;
    if (kept != nullptr) *kept = std::move(copy);
    return true;
}

}  // namespace

bool allocate_mapped(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, OwnedFd* kept,
                     MappedMemory& out, std::string& reason) {
    MappedMemory memory;
    if (!vulkan.allocate(bytes, memory.mapping, reason)) return false;
    if (!import_export(vulkan, bytes, kept, memory, reason)) {
        vulkan.release(memory.mapping);
        return false;
    }
    out = memory;
    return true;
}

bool adopt_unmapped(const OwnedFd& descriptor, std::uint64_t bytes, MappedMemory& out,
                    std::string& reason) {
    MappedMemory memory;
    OwnedFd copy = another(descriptor, reason);
    if (!copy || !import_opaque(std::move(copy), bytes, memory.opaque, reason)) return false;
    out = memory;
    return true;
}

void release_mapped(vulkan::VulkanMemory* vulkan, MappedMemory& memory) noexcept {
    release_opaque(memory.opaque);
    if (vulkan != nullptr) vulkan->release(memory.mapping);
    memory = MappedMemory{};
}

}  // namespace gpunbd::storage::cuda
