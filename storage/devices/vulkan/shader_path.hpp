// The kernel path: all copies that are added in a round become units of one run of the shader, or
// of as few as possible. The commands are recorded in advance; a run only needs its units.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/gpu/copy_unit.hpp"
#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/copy_shader.hpp"
#include "storage/devices/vulkan/staging_memory.hpp"
#include "storage/devices/vulkan/submission_ring.hpp"

namespace gpunbd::storage::vulkan {

class ShaderPath final : public CopyPath {
 public:
    static constexpr std::uint32_t max_units = 128;  // of one run
    static constexpr std::uint32_t depth = 8;        // runs in flight
    static constexpr std::size_t table_bytes = sizeof(CopyUnit) * max_units * depth;

    // Copies are to and from `staging`, in which this object uses table_bytes at `table`. All
    // arguments outlive it. Throws Unavailable.
    ShaderPath(VulkanState& state, const CopyShader& shader, Queue& queue,
               const StagingMemory& staging, std::byte* table);

    // The shader copies whole words.
    bool can_take(const Copy& copy) const override;
    bool has_room(const Copy& copy) override;
    bool add(Copy& copy) override;
    void submit() override;
    bool take_ended(CopyQueue& ended) override { return ring_.take_ended(ended); }
    bool idle() const override { return ring_.idle(); }
    void take_all(CopyQueue& all) override { ring_.take_all(all); }

    // Runs all command buffers without a unit. Throws Unavailable.
    void warm_up();

 private:
    // Commands exist for 1, 2, 4 ... max_units units.
    static constexpr std::uint32_t sizes = 8;
    static_assert(1U << (sizes - 1) == max_units);

    CopyUnit* units() const { return table_ + std::size_t{ring_.slot()} * max_units; }
    void close();

    VulkanState& state_;
    const StagingMemory& staging_;
    CopyUnit* const table_;  // max_units for each slot of the ring
    CommandBuffers buffers_;
    SubmissionRing ring_;
    std::uint32_t count_ = 0;  // units of the open group
};

}  // namespace gpunbd::storage::vulkan
