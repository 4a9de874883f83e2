#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/gpu_state.hpp"
#include "storage/devices/vulkan/buffer.hpp"
#include "storage/devices/vulkan/logical_device.hpp"

namespace gpunbd::storage::vulkan {

// The buffers of all slabs, found by the address of a copy in constant time and without a lock.
// Slab::address and Copy::address hold the number of a slab and an offset in it. Only at() may be
// called by any thread, for slabs that its caller may use; the other functions need a lock.
class SlabTable {
 public:
    explicit SlabTable(std::uint32_t slabs) : buffers_(std::make_unique<Buffer[]>(slabs)) {
        free_.reserve(slabs);
        for (std::uint32_t number = slabs; number != 0; --number) free_.push_back(number - 1);
    }

    // An address for a new slab, which has no buffer yet. Empty: the table is full.
    std::optional<std::uint64_t> take() {
        if (free_.empty()) return std::nullopt;
        const std::uint32_t number = free_.back();
        free_.pop_back();
        return (std::uint64_t{number} + 1) << offset_bits;  // 0 is no address
    }
    void set(std::uint64_t address, Buffer buffer) {
        GPUNBD_ASSERT(offset_of(address) == 0, "a buffer belongs to the address of a whole slab");
        buffers_[number_of(address)] = std::move(buffer);
    }
    // Returns the buffer, which may be empty.
    Buffer give_back(std::uint64_t address) noexcept {
        const std::uint32_t number = number_of(address);
        GPUNBD_ASSERT(free_.size() < free_.capacity(), "an address is given back once");
        free_.push_back(number);
        return std::exchange(buffers_[number], Buffer());
    }

    const Buffer& at(std::uint64_t address) const { return buffers_[number_of(address)]; }
    static std::uint64_t offset_of(std::uint64_t address) {
        return address & ((std::uint64_t{1} << offset_bits) - 1);
    }

 private:
    static constexpr unsigned offset_bits = 40;
    static std::uint32_t number_of(std::uint64_t address) {
        GPUNBD_ASSERT(address >> offset_bits != 0, "an address of a slab has its number");
        return static_cast<std::uint32_t>((address >> offset_bits) - 1);
    }

    std::unique_ptr<Buffer[]> buffers_;
    std::vector<std::uint32_t> free_;  // the numbers that are not in use
};

// State that a Vulkan device shares with its channels.
struct VulkanState : GpuState {
    // Throws Unavailable.
    VulkanState(std::string device_id, GpuUse use, std::shared_ptr<const Instance> instance,
                const PhysicalDevice& physical);

    LogicalDevice device;
    SlabTable slabs;
    std::uint32_t copy_family = 0;  // the family of the queues that copy

    // A call failed that concerns the whole device or the operation `what`. Fails the device if it
    // is lost; otherwise logs the error.
    void report(VkResult error, std::string_view what) noexcept;
    // Sets the status of a copy that could not be started, and reports the error.
    void refuse(Copy& copy, VkResult error) noexcept;
};

}  // namespace gpunbd::storage::vulkan
