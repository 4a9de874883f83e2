#include "storage/devices/vulkan/queue_probe.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "storage/devices/vulkan/blocking_commands.hpp"
#include "storage/devices/vulkan/staging_memory.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint64_t probe_bytes = 4 << 20;

}  // namespace

double copy_rate(VulkanState& state, Queue& queue) {
    LogicalDevice& device = state.device;
    const StagingMemory staging(device, 2 * probe_bytes);
    Buffer memory;
    require(
        Buffer::make(device, {.bytes = probe_bytes, .type = device.memory().local_type}, memory),
        "no memory for a test");
    std::byte* const sent = staging.get();
    std::byte* const received = sent + probe_bytes;
    for (std::uint64_t i = 0; i != probe_bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + 1);
    BlockingCommands commands(state, queue);
    const DeviceFunctions& call = device.functions();
    // In two submissions, which is how writes and reads follow each other. The fill clears the end.
    constexpr std::uint64_t filled = probe_bytes / 4;
    require(commands.run([&](VkCommandBuffer buffer) {
        const VkBufferCopy region{.srcOffset = 0, .dstOffset = 0, .size = probe_bytes - filled};
        call.CmdCopyBuffer(buffer, staging.buffer(), memory.get(), 1, &region);
        call.CmdFillBuffer(buffer, memory.get(), probe_bytes - filled, filled, 0);
    }),
            "a copy to it fails");
    const auto begin = std::chrono::steady_clock::now();
    require(commands.run([&](VkCommandBuffer buffer) {
        const VkBufferCopy region{.srcOffset = 0, .dstOffset = probe_bytes, .size = probe_bytes};
        call.CmdCopyBuffer(buffer, memory.get(), staging.buffer(), 1, &region);
    }),
            "a copy from it fails");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::memset(sent + probe_bytes - filled, 0, filled);
    if (!std::equal(sent, sent + probe_bytes, received)) {
        throw Unavailable("its copies have other contents");
    }
    return static_cast<double>(probe_bytes) / took.count();
}

}  // namespace gpunbd::storage::vulkan
