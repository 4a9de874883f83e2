#include "storage/devices/cuda/mapped_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpunbd::storage::cuda {

namespace {

// Another descriptor of the same memory; an import takes one.
int another(int descriptor, std::string& why_not) {
    const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) why_not = std::strerror(errno);
    return copy;
}

bool import_export(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, int* kept,
                   MappedMemory& memory, std::string& why_not) {
    const int descriptor = vulkan.export_descriptor(memory.mapping, why_not);
    if (descriptor < 0) return false;
    const int copy = kept == nullptr ? -1 : another(descriptor, why_not);
    if (kept != nullptr && copy < 0) {
        ::close(descriptor);
        return false;
    }
    if (!import_opaque(descriptor, bytes, memory.opaque, why_not)) {
        if (copy >= 0) ::close(copy);
        return false;
    }
    if (kept != nullptr) *kept = copy;
    return true;
}

}  // namespace

bool allocate_mapped(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, int* kept,
                     MappedMemory& out, std::string& why_not) {
    MappedMemory memory;
    if (!vulkan.allocate(bytes, memory.mapping, why_not)) return false;
    if (!import_export(vulkan, bytes, kept, memory, why_not)) {
        vulkan.release(memory.mapping);
        return false;
    }
    out = memory;
    return true;
}

bool adopt_unmapped(int descriptor, std::uint64_t bytes, MappedMemory& out, std::string& why_not) {
    MappedMemory memory;
    const int copy = another(descriptor, why_not);
    if (copy < 0 || !import_opaque(copy, bytes, memory.opaque, why_not)) return false;
    out = memory;
    return true;
}

void release_mapped(vulkan::VulkanMemory* vulkan, MappedMemory& memory) noexcept {
    release_opaque(memory.opaque);
    if (vulkan != nullptr) vulkan->release(memory.mapping);
    memory = MappedMemory{};
}

}  // namespace gpunbd::storage::cuda
