#include "storage/devices/vulkan/kept_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "storage/devices/gpu/gpu_id.hpp"
#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/staging_memory.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr VkExternalMemoryHandleTypeFlagBits opaque = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
constexpr std::uint64_t proof_bytes = 64 << 10;
constexpr std::uint32_t proof_word = 0x5aa51234;

}  // namespace

KeptMemory::KeptMemory(VulkanState& state, std::shared_ptr<const Instance> instance)
    : state_(state), instance_(std::move(instance)) {}

std::string KeptMemory::reason_not_kept() {
    const Lock lock(mutex_);
    if (!reason_) {
        try {
            reason_ = prove();
        } catch (const std::runtime_error& error) {
            reason_ = fmt::format("its driver does not keep memory: {}", error.what());
        }
    }
    return *reason_;
}

std::string KeptMemory::reason_not_exported() const {
    if (!state_.device.exports_memory()) {
        return fmt::format("its driver lacks {}", VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
    }
    VkPhysicalDeviceExternalBufferInfo wanted{};
    wanted.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO;
    wanted.usage = Buffer::usage(state_.device);
    wanted.handleType = opaque;
    VkExternalBufferProperties found{};
    found.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES;
    instance_->find<PFN_vkGetPhysicalDeviceExternalBufferProperties>(
        "vkGetPhysicalDeviceExternalBufferProperties")(state_.device.physical().handle, &wanted,
                                                       &found);
    constexpr VkExternalMemoryFeatureFlags both =
        VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT | VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
    if ((found.externalMemoryProperties.externalMemoryFeatures & both) == both) return {};
    return "its driver does not export the memory of buffers";
}

std::string KeptMemory::prove() {
    std::string reason = reason_not_exported();
    if (!reason.empty()) return reason;
    const std::uint32_t type = state_.device.memory().local_type;
    OwnedFd descriptor;
    {
        VulkanState closed(state_.id, GpuUse::copy_engines, instance_, state_.device.physical());
        Buffer memory;
        require(allocate_on(closed.device, proof_bytes, type, false, memory, descriptor),
                "exporting fails");
        BlockingCommands commands(closed, closed.device.queues(state_.copy_family).front());
        require(commands.run([&](VkCommandBuffer buffer) {
            closed.device.functions().CmdFillBuffer(buffer, memory.get(), 0, proof_bytes,
                                                    proof_word);
        }),
                "filling it fails");
    }
    Buffer memory;
    require(take_over(descriptor, proof_bytes, type, false, memory), "importing fails");
    const StagingMemory staging(state_.device, proof_bytes);
    BlockingCommands commands(state_, state_.device.queues(state_.copy_family).front());
    require(commands.run([&](VkCommandBuffer buffer) {
        const VkBufferCopy all{.srcOffset = 0, .dstOffset = 0, .size = proof_bytes};
        state_.device.functions().CmdCopyBuffer(buffer, memory.get(), staging.buffer(), 1, &all);
    }),
            "reading it fails");
    const auto* const words = reinterpret_cast<const std::uint32_t*>(staging.get());
    const bool same = std::all_of(words, words + proof_bytes / sizeof(proof_word),
                                  [](std::uint32_t word) { return word == proof_word; });
    return same ? "" : "its driver does not keep contents: memory of a closed device has changed";
}

// NVIDIA's driver exports no memory that the CPU can address for a buffer.
bool KeptMemory::allows(std::uint32_t type) {
    const Lock lock(mutex_);
    try {
        if (!types_) types_ = Buffer::usable_types(state_.device, opaque);
    } catch (const Unavailable&) {  // the next call tries again
        return false;
    }
    return (*types_ >> type & 1) != 0;
}

VkResult KeptMemory::allocate(std::uint64_t bytes, std::uint32_t type, bool mapped, Buffer& out,
                              OwnedFd& descriptor) {
    return allocate_on(state_.device, bytes, type, mapped, out, descriptor);
}

VkResult KeptMemory::allocate_on(LogicalDevice& device, std::uint64_t bytes, std::uint32_t type,
                                 bool mapped, Buffer& out, OwnedFd& descriptor) {
    Buffer memory;
    const VkResult result = Buffer::make(
        device,
        {.bytes = bytes, .type = type, .mapped = mapped, .handle_type = opaque, .exported = true},
        memory);
    if (result != VK_SUCCESS) return result;
    VkMemoryGetFdInfoKHR wanted{};
    wanted.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR;
    wanted.memory = memory.memory();
    wanted.handleType = opaque;
    int number = -1;
    const VkResult exported = device.functions().GetMemoryFdKHR(device.get(), &wanted, &number);
    if (exported != VK_SUCCESS) return exported;
    ::fcntl(number, F_SETFD, FD_CLOEXEC);
    descriptor = OwnedFd(number);
    out = std::move(memory);
    return VK_SUCCESS;
}

VkResult KeptMemory::take_over(const OwnedFd& descriptor, std::uint64_t bytes, std::uint32_t type,
                               bool mapped, Buffer& out) {
    OwnedFd copy = OwnedFd::copy_of(descriptor);
    if (!copy) return VK_ERROR_TOO_MANY_OBJECTS;
    VkImportMemoryFdInfoKHR imported{};
    imported.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR;
    imported.handleType = opaque;
    imported.fd = copy.get();
    bool taken = false;
    const VkResult result = Buffer::make(state_.device,
                                         {.bytes = bytes,
                                          .type = type,
                                          .mapped = mapped,
                                          .handle_type = opaque,
                                          .imported = &imported,
                                          .taken = &taken},
                                         out);
    if (taken) static_cast<void>(copy.release());  // the driver owns the descriptor now
    return result;
}

std::string KeptMemory::reason_not_memory(const OwnedFd& descriptor, std::uint64_t bytes) const {
    if (!state_.device.physical().on_cpu()) return reason_not_gpu_memory(descriptor);
    struct stat facts {};
    if (::fstat(descriptor.get(), &facts) != 0) return std::strerror(errno);
    const bool fits = ::fcntl(descriptor.get(), F_GET_SEALS) >= 0 &&
                      static_cast<std::uint64_t>(facts.st_size) >= bytes;
    return fits ? "" : "it is not memory of the driver";
}

}  // namespace gpunbd::storage::vulkan
