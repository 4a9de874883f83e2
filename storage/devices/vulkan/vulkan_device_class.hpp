// The device class behind vulkan_device.hpp, for this folder only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/devices/device_driver.hpp"
#include "storage/devices/gpu/competition_watch.hpp"
#include "storage/devices/gpu/measured_calibration.hpp"
#include "storage/devices/host/system_memory.hpp"
#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/copy_shader.hpp"
#include "storage/devices/vulkan/kept_memory.hpp"
#include "storage/devices/vulkan/residency_check.hpp"
#include "storage/devices/vulkan/shader_probe.hpp"
#include "storage/devices/vulkan/vulkan_device.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

class VulkanChannel;

class VulkanDevice final : public Device {
 public:
    VulkanDevice(std::uint32_t number, const std::string& id,
                 std::shared_ptr<const Instance> instance, const PhysicalDevice& physical,
                 const DeviceOptions& options);

    const DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override;
    std::uint64_t free_memory() const override;
    bool is_system_memory() const override { return physical().shares_system_memory(); }
    bool sends_in_place() const override { return in_place_; }
    bool failed() const override { return state_.failed(); }
    DeviceUse use(std::uint64_t allocated) const override;
    bool slow_to_allocate() const override { return true; }
    std::string reason_not_kept() const override;
    Status allocate(const SlabRequest& request, Slab& out) override;
    Status take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) override;
    void release(Slab& slab) noexcept override;
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override;
    Status copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                std::uint64_t to_offset, std::uint64_t bytes) override;
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override;

    std::string calibrate() override;
    std::string calibration_state() const override { return calibration_state_; }
    bool restore_calibration(std::string_view state) override;

 private:
    const PhysicalDevice& physical() const { return state_.device.physical(); }
    const MemoryPlan& memory() const { return state_.device.memory(); }
    // The family of the plan whose queues copy best. Throws Unavailable if none copies.
    std::uint32_t find_copy_family();
    std::unique_ptr<VulkanChannel> open_vulkan_channel(const ChannelOptions& options);
    // What a calibration result is valid for.
    std::string circumstances() const;
    // Fails the device if it is lost.
    void look_for_faults() noexcept;
    // Empty: the shader can be used. Otherwise the reason.
    std::string open_shader();
    std::string describe_access(const std::string& reason_without_shader) const;
    // Counts the bytes of a new slab and returns its address. Empty: there is no memory for it.
    std::optional<std::uint64_t> charge(std::uint64_t bytes);
    // The opposite. Returns the buffer of the slab, which is freed without the lock.
    Buffer discharge(std::uint64_t address, std::uint64_t bytes) noexcept;
    Status fill(Slab& slab, bool kept);
    // The memory of a new slab, mapped if possible.
    VkResult take_memory(Slab& slab, bool kept, Buffer& out);
    VkResult take_memory(Slab& slab, bool kept, std::uint32_t type, bool mapped, Buffer& out);
    void set_memory(Slab& slab, Buffer memory);
    // Whether the driver has placed a new slab in host memory, which is reported.
    bool is_misplaced(const Slab& slab);
    // An empty text, or the reason for a failure.
    std::string take_over_as_recorded(const OwnedFd& descriptor, const SlabRecord& record,
                                      Slab& slab);
    bool may_map(std::uint64_t bytes) const;
    void mapping_ended(VkResult error);

    const DeviceOptions options_;
    VulkanState state_;
    DeviceInfo info_;
    Calibration calibration_;
    std::string calibration_state_;
    const SystemMemory system_{"/"};
    // All slabs are mapped and cached: channels copy nothing.
    bool in_place_ = false;
    std::optional<CopyShader> shader_;
    std::optional<ShaderProbe> probe_;
    const std::unique_ptr<KeptMemory> kept_;
    std::optional<ResidencyCheck> residency_;  // empty: it is not needed
    std::optional<BlockingCommands> service_;
    std::atomic<std::uint32_t> channels_{0};  // that have been opened

    mutable Mutex mutex_;  // also held while state_.slabs changes
    std::uint64_t allocated_bytes_ GUARDED_BY(mutex_) = 0;
    std::uint64_t mapped_bytes_ GUARDED_BY(mutex_) = 0;
    bool mapping_exhausted_ GUARDED_BY(mutex_) = false;  // until a slab is released
    bool exhaustion_logged_ GUARDED_BY(mutex_) = false;

    std::optional<DeviceWatch> watch_;
    std::optional<CompetitionWatch> competition_watch_;  // destroyed first
};

}  // namespace gpunbd::storage::vulkan
