// A test device with an exact capacity. It detects slabs that are released twice or in part, and
// announced releases that do not happen. Released memory is unmapped, so that accessing it crashes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "storage/devices/device.hpp"

namespace gpunbd::storage::test {

class MemoryDevice final : public Device {
 public:
    struct Options {
        std::uint64_t capacity = std::uint64_t{1} << 40;  // bytes
        bool discards = true;
        bool slow = false;  // slow_to_allocate(), so that page pools use a provisioner
    };

    MemoryDevice(std::uint32_t number, const Options& options);
    ~MemoryDevice() override;

    const DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override;
    bool is_system_memory() const override { return true; }
    bool sends_in_place() const override { return true; }
    bool slow_to_allocate() const override { return slow_; }
    std::string reason_not_kept() const override { return {}; }
    Status allocate(const SlabRequest& request, Slab& out) override;
    Status take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) override;
    void release(Slab& slab) noexcept override;
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override;
    Status copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                std::uint64_t to_offset, std::uint64_t bytes) override;
    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override;
    // As of the host device: in place.
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override;

    std::uint64_t used() const;
    std::uint64_t slabs() const;
    void set_capacity(std::uint64_t bytes);

    std::function<void()> allocates;  // called by each allocation, if it is not empty
    std::atomic<bool> clears_fail{false};
    std::atomic<std::uint64_t> clears{0};
    std::atomic<std::uint64_t> copies{0};

 private:
    // With the lock held. An empty descriptor means private memory.
    Status add(OwnedFd& descriptor, const SlabRecord& record, Slab& out);

    DeviceInfo info_;
    const bool discards_;
    const bool slow_;
    mutable std::mutex mutex_;
    std::uint64_t capacity_;
    std::uint64_t used_ = 0;
    std::map<std::byte*, std::uint64_t> slabs_;  // address, bytes
};

}  // namespace gpunbd::storage::test
