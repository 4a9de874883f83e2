// The device class behind cuda_device.hpp, for this folder only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/cuda/kernel_path.hpp"
#include "storage/devices/cuda/mailbox_memory.hpp"
#include "storage/devices/cuda/mapped_memory.hpp"
#include "storage/devices/cuda/revocable_memory.hpp"
#include "storage/devices/cuda/shareable_memory.hpp"
#include "storage/devices/gpu/competition_watch.hpp"
#include "storage/devices/gpu/measured_calibration.hpp"
#include "storage/devices/gpu/opened_files.hpp"
#include "storage/devices/vulkan/base/instance.hpp"

namespace gpunbd::storage::cuda {

class CudaChannel;

class CudaDevice final : public Device {
 public:
    CudaDevice(std::uint32_t number, int ordinal, const DeviceOptions& options, std::string id);
    ~CudaDevice() override;

    const DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override;
    std::uint64_t free_memory() const override;
    bool failed() const override { return state_.failed(); }
    DeviceUse use(std::uint64_t allocated) const override;
    bool slow_to_allocate() const override { return true; }

    std::span<const OwnedFd> mapping_files() const override;
    bool lacks_mapping() const override { return no_room_to_map_; }
    std::string reason_not_kept() const override;
    Status allocate(const SlabRequest& request, Slab& out) override;
    Status take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) override;
    std::byte* address(const Slab& slab) override;
    void release(Slab& slab) noexcept override;
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override;
    Status copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                std::uint64_t to_offset, std::uint64_t bytes) override;
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override;

    std::unique_ptr<CudaChannel> open_cuda_channel(const ChannelOptions& options);

    std::string calibrate() override;
    std::string calibration_state() const override { return calibration_state_; }
    bool restore_calibration(std::string_view state) override;

 private:
    void describe();
    std::string open_mapping();
    // Returns an empty text if channels may have persistent kernels, or the reason why not.
    std::string allow_persistent_kernel();
    // Checks the mapping by writing and reading through it in both directions. Returns the reason
    // if it does not work.
    std::string try_mapping() REQUIRES(mutex_);
    std::string describe_access(const std::string& reason_not_mapped);
    // free_memory(), seen a short time ago.
    std::uint64_t recent_free_memory() const REQUIRES(mutex_);
    MailboxMemory make_mailbox();
    // By Slab::handle, which is 0 for memory of cudaMalloc and revocable memory.
    using MappedSlabs = std::map<std::uint64_t, MappedMemory>;
    using SharedSlabs = std::map<std::uint64_t, ShareableMemory::Piece>;
    bool add_mapped(const SlabRequest& request, Slab& out) REQUIRES(mutex_);
    Status add_shared(std::uint64_t bytes, Slab& out) REQUIRES(mutex_);
    Status allocate_plain(std::uint64_t bytes, Slab& out) REQUIRES(mutex_);
    Status add_revocable(std::uint64_t bytes, Slab& out) REQUIRES(mutex_);
    void add_slab(MappedSlabs::node_type slab, std::uint64_t bytes, Slab& out) noexcept
        REQUIRES(mutex_);
    void add_slab(SharedSlabs::node_type slab, Slab& out) noexcept REQUIRES(mutex_);
    std::string take_over_as_recorded(const OwnedFd& descriptor, const SlabRecord& record,
                                      Slab& out) REQUIRES(mutex_);
    void log_unmapped(std::string_view reason) noexcept REQUIRES(mutex_);
    Status failure(cudaError_t error, const std::string& what);
    Status failure(const std::string& error, const std::string& what);
    // What a calibration result is valid for.
    std::string circumstances() const;

    const DeviceOptions options_;
    DeviceState state_;
    DeviceInfo info_;
    Calibration calibration_;
    std::string calibration_state_;
    vulkan::Uuid uuid_{};
    const ShareableMemory shareable_;
    std::optional<OpenedFiles> mapping_files_;  // the files that vulkan_ has opened
    bool no_room_to_map_ = false;
    std::unique_ptr<RevocableMemory> revocable_;  // null: no memory is revocable

    Mutex service_mutex_;  // serializes the use of the service stream
    Stream service_;

    mutable Mutex mutex_;
    std::unique_ptr<vulkan::VulkanMemory> vulkan_ GUARDED_BY(mutex_);
    MappedSlabs mapped_slabs_ GUARDED_BY(mutex_);
    SharedSlabs shared_slabs_ GUARDED_BY(mutex_);
    std::uint64_t next_handle_ GUARDED_BY(mutex_) = 1;
    std::uint64_t mapped_bytes_ GUARDED_BY(mutex_) = 0;
    std::uint64_t allocated_bytes_ GUARDED_BY(mutex_) = 0;
    bool mapping_exhausted_ GUARDED_BY(mutex_) = false;  // until a mapped slab is released
    bool exhaustion_logged_ GUARDED_BY(mutex_) = false;
    bool unmapped_logged_ GUARDED_BY(mutex_) = false;
    mutable std::uint64_t free_seen_ GUARDED_BY(mutex_) = 0;
    mutable std::chrono::steady_clock::time_point free_seen_at_ GUARDED_BY(mutex_){};

    FaultCheck fault_check_{state_};
    KernelProbe kernel_probe_{state_};
    DeviceWatch watch_{state_, [this] { fault_check_.run(); }};
    CompetitionWatch competition_watch_{// destroyed first
                                        state_,
                                        {.launch = [this] { return kernel_probe_.launch(); },
                                         .ended = [this] { return kernel_probe_.ended(); }}};
};

}  // namespace gpunbd::storage::cuda
