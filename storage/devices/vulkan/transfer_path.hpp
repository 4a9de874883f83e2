// The copy engine path, which takes every copy: regions of vkCmdCopyBuffer and fills. All copies
// of a round are submitted by one call, in groups, so that long ones end one after the other.
#pragma once

#include <array>
#include <cstdint>

#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/staging_memory.hpp"
#include "storage/devices/vulkan/submission_ring.hpp"

namespace gpunbd::storage::vulkan {

class TransferPath final : public CopyPath {
 public:
    static constexpr std::uint32_t own_bytes = 8;

    // Reads and writes have a queue each; they may be the same. Copies are to and from `staging`,
    // in which this object uses own_bytes at `own`, which are zero. All arguments outlive the path.
    // Throws Unavailable.
    TransferPath(VulkanState& state, Queue& reads, Queue& writes, const StagingMemory& staging,
                 const std::byte* own);

    // Records and runs all command buffers, so that drivers allocate what they need. Throws
    // Unavailable.
    void warm_up();

    bool has_room(const Copy& copy) override { return !stream_of(copy).ring.full(); }
    bool add(Copy& copy) override;
    void submit() override;
    bool take_ended(CopyQueue& ended) override;
    bool idle() const override { return reads_.ring.idle() && writes_.ring.idle(); }
    void take_all(CopyQueue& all) override;

 private:
    static constexpr std::uint32_t depth = 64;        // groups in flight
    static constexpr std::uint32_t max_regions = 64;  // of one command

    // The copies of one direction.
    struct Stream {
        Stream(VulkanState& state, Queue& queue);
        VkCommandBuffer commands() const { return buffers.at(ring.slot()); }

        CommandBuffers buffers;
        SubmissionRing ring;  // destroyed first
        bool recording = false;
        std::uint64_t bytes = 0;  // in the open group
        // Regions that are not recorded yet.
        VkBuffer from = VK_NULL_HANDLE;
        VkBuffer to = VK_NULL_HANDLE;
        std::uint32_t count = 0;
        std::array<VkBufferCopy, max_regions> regions{};
    };

    Stream& stream_of(const Copy& copy) { return copy.kind == Copy::Kind::read ? reads_ : writes_; }
    void add_region(Stream& stream, VkBuffer from, VkBuffer to, const VkBufferCopy& region);
    void record_regions(Stream& stream);
    void record_zeroes(Stream& stream, const Copy& copy);
    void close(Stream& stream);

    VulkanState& state_;
    const StagingMemory& staging_;
    const std::uint64_t zeroes_;  // the offset of a unit of zeroes in the staging memory
    Stream reads_;
    Stream writes_;  // also zeroes
};

}  // namespace gpunbd::storage::vulkan
