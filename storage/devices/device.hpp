#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/base/status.hpp"
#include "storage/devices/channel.hpp"
#include "storage/devices/slab_lenders.hpp"

namespace gpunbd::storage {

// Counts the slabs of a device that are about to be released. An allocation that finds no memory
// waits for them before it fails.
class PendingReleases {
 public:
    void begin() {
        const Lock lock(mutex_);
        ++pending_;
    }
    // The slab has been released, or is used again.
    void end() {
        {
            const Lock lock(mutex_);
            GPUNBD_ASSERT(pending_ != 0, "a release is announced before it ends");
            --pending_;
            ++ended_;
        }
        changed_.notify_all();
    }

    // How many releases have ended. Read it before an allocation, and pass it to wait_for_one() if
    // the allocation fails.
    std::uint64_t ended() const {
        const Lock lock(mutex_);
        return ended_;
    }
    // Returns true at once if a release has ended since `before` was read: there may be memory now.
    // Otherwise returns false if no release is pending, and waits until one has ended, or for a
    // short time, since the caller may itself have got slabs to release meanwhile.
    bool wait_for_one(std::uint64_t before) {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(before <= ended_, "the number of releases that have ended only grows");
        if (ended_ != before) return true;
        if (pending_ == 0) return false;
        changed_.wait_for(mutex_, std::chrono::milliseconds(10),
                          [&]() REQUIRES(mutex_) { return ended_ != before; });
        return true;
    }
    // Whether a slab is about to be released.
    bool pending() const {
        const Lock lock(mutex_);
        return pending_ != 0;
    }

 private:
    mutable Mutex mutex_;
    Condition changed_;
    std::uint64_t pending_ GUARDED_BY(mutex_) = 0;
    std::uint64_t ended_ GUARDED_BY(mutex_) = 0;
};

// The memory that page pools may allocate as slabs on one device. Lowering the limit below what is
// in use releases nothing, but no pool gets another slab.
// All functions may be called from any thread. All sizes are in bytes.
class SlabBudget {
 public:
    static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

    explicit SlabBudget(std::uint64_t limit = unlimited) : limit_(limit) {}

    // Returns false, without effect, if the limit would be exceeded.
    bool take(std::uint64_t bytes) {
        std::uint64_t used = used_.load();
        do {
            if (bytes > limit_.load() || used > limit_.load() - bytes) return false;
        } while (!used_.compare_exchange_weak(used, used + bytes));
        return true;
    }
    // For memory that is allocated already.
    void add(std::uint64_t bytes) { used_.fetch_add(bytes); }
    void give_back(std::uint64_t bytes) {
        const std::uint64_t used = used_.fetch_sub(bytes);
        GPUNBD_ASSERT(bytes <= used, "memory was counted before it is given back");
    }

    std::uint64_t used() const { return used_.load(); }
    std::uint64_t limit() const { return limit_.load(); }
    void set_limit(std::uint64_t bytes) { limit_.store(bytes); }

 private:
    std::atomic<std::uint64_t> used_{0};
    std::atomic<std::uint64_t> limit_;
};

// The CPU address of a slab. A taken-over slab may get one while other threads use the slab; then
// it does not change any more.
class CpuAddress {
 public:
    CpuAddress() = default;
    // Implicit on purpose.
    CpuAddress(std::byte* address) : address_(address) {}
    CpuAddress(const CpuAddress& other) : address_(static_cast<std::byte*>(other)) {}
    CpuAddress& operator=(const CpuAddress& other) {
        address_.store(other, std::memory_order_release);
        return *this;
    }

    // Null: the CPU cannot address the slab, or not yet.
    operator std::byte*() const { return address_.load(std::memory_order_acquire); }

 private:
    std::atomic<std::byte*> address_{nullptr};
};

// What `gpunbd devices` prints. Empty texts are omitted.
struct DeviceInfo {
    std::string id;    // "host", "cuda:0"
    std::string name;  // "NVIDIA H200"
    // Identifies the device across restarts: "host", "GPU-" and a UUID, or the id of a BAR. Kept
    // contents can be taken over by the device with the same identity.
    std::string identity;
    // Identifies the hardware if another driver also knows it: "GPU-" and a UUID. Empty: none does.
    std::string hardware;
    std::string driver;   // name and version, if it is not that of the id
    std::string memory;   // its heaps, what the CPU can map, or its limit
    std::string queues;   // how many of each kind
    std::string address;  // PCI address
    std::string link;     // "PCIe gen 5 x16"
    std::string access;   // the access paths that work, and why others do not
    int copy_engines = 0;
    std::uint64_t total = 0;                     // bytes
    std::uint64_t reserve = 0;                   // bytes left to other users of the device
    std::optional<std::uint64_t> capacity = {};  // the most bytes of all slabs; empty: not limited
    std::uint64_t revocable = 0;                 // the most bytes of revocable slabs
    int numa_node = -1;

    // The memory that is there for slabs and for what others use beside them, in bytes.
    std::uint64_t size() const { return std::min(total, capacity.value_or(total)); }
};

// Current use of a device that volumes do not count.
struct DeviceUse {
    std::uint64_t mapped = 0;  // bytes that the CPU can address
    // Whether another program computes on the device; empty: unknown, or not a GPU.
    std::optional<bool> others_compute = {};
    std::uint64_t competition_noticed = 0;  // how often that began
    // Bytes of all revocable slabs, and of the slabs that may have pages on the host.
    std::uint64_t revocable = 0;
    std::uint64_t yielded = 0;
    std::uint64_t evictions = 0;  // how often other programs were seen to take such memory
    // Bytes of revocable slabs that should be given up, because the host could not take them.
    std::uint64_t revocable_excess = 0;
};

enum class Provision {
    thin,  // slabs are allocated on demand and released when they are empty
    full,  // all slabs are allocated at the start, resident, and stay
};

struct SlabRequest {
    std::uint64_t bytes = 0;
    Provision provision = Provision::thin;
    // The slab has a descriptor, so that another process can take it over.
    bool kept = false;
    bool fixed = false;  // the slab must not be revocable
};

// The record of a kept slab that another process needs to take it over, in addition to its
// descriptor and the identity of its device.
struct SlabRecord {
    std::uint64_t bytes = 0;
    Provision provision = Provision::thin;
    std::uint8_t kind = 0;  // Slab::kind
};

// One allocation on a device, many pages long. It owns its descriptor; only Device::release() frees
// the memory.
struct Slab {
    CpuAddress cpu;             // null: accessible only through a channel
    std::uint64_t address = 0;  // in the address space of the device
    std::uint64_t bytes = 0;    // 0: no slab
    std::uint64_t handle = 0;   // identifies the slab within its device
    bool resident = false;      // allocated with Provision::full
    // The driver moves pages of the slab to host memory if another program needs the device memory.
    bool revocable = false;
    std::uint8_t kind = 0;  // how it was allocated; defined by the device
    // The descriptor of a kept slab, whose memory lives until all copies of it are closed. Empty:
    // the memory ends with the process.
    OwnedFd descriptor = {};

    bool is_allocated() const { return bytes != 0; }
};

// A device is one pool of memory (`host`, `cuda:N`, `pci:ADDRESS/BAR`, `file:PATH`). It allocates
// and clears slabs, and opens the channels through which workers copy.
class Device {
 public:
    explicit Device(std::uint32_t number) : number_(number) {}
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // Dense and unique in the process. Workers use it as an index.
    std::uint32_t number() const { return number_; }
    virtual const DeviceInfo& info() const = 0;
    // Bytes that can still be allocated, without the reserve.
    virtual std::uint64_t available() const = 0;
    // Bytes that any program can allocate. May be called often, from any thread.
    virtual std::uint64_t free_memory() const { return available() + info().reserve; }
    // Whether its memory is also that of all programs, so that they wait while it is scarce.
    virtual bool is_system_memory() const { return false; }
    // Whether payload is sent directly from pages, which the CPU can address and caches. Otherwise
    // it passes through staging memory.
    virtual bool sends_in_place() const { return false; }
    virtual bool failed() const { return false; }
    // Whether contents can still be read. A file can be read after a write to it has failed.
    virtual bool readable() const { return !failed(); }
    // `allocated` is the sum of all its slabs, in bytes.
    virtual DeviceUse use(std::uint64_t allocated) const { return {.mapped = allocated}; }
    // Whether allocating and clearing are so slow that a thread should do them ahead of need.
    virtual bool slow_to_allocate() const { return false; }
    // Whether only one process can open the device.
    virtual bool exclusive() const { return false; }
    PendingReleases& releases() { return releases_; }
    SlabLenders& lenders() { return lenders_; }
    // For the slabs of volumes that are laid out on this device.
    SlabBudget& budget() { return budget_; }

    // The files through which the driver maps device memory for the CPU, owned by the device.
    // Closing the last copy of such a file, in any process, unmaps the memory, which takes long.
    virtual std::span<const OwnedFd> mapping_files() const { return {}; }
    // Whether mapping failed for lack of address space on the device, which another process may
    // hold.
    virtual bool lacks_mapping() const { return false; }
    // Why no slab of this device can be kept; empty: slabs can be kept.
    virtual std::string reason_not_kept() const { return "its memory ends with the process"; }

    // The following functions may be called from any thread.
    //
    // Allocates a slab that reads as zeroes. After no_space nothing is allocated. io_error also
    // means that the slab cannot be kept.
    virtual Status allocate(const SlabRequest& request, Slab& out) = 0;
    // Takes over a slab with its contents that a device of the same identity allocated in another
    // process. Ignores the capacity, because the memory is already allocated, and validates the
    // descriptor and the record. After ok the slab owns the descriptor; otherwise the caller keeps
    // it, and the log has the reason.
    virtual Status take_over(OwnedFd& /*descriptor*/, const SlabRecord&, Slab& /*out*/) {
        return Status::io_error;
    }
    // Maps a slab that take_over() has left without a CPU address, since mapping takes long.
    // Returns null if that is impossible. The slab must not be released meanwhile.
    virtual std::byte* address(const Slab&) { return nullptr; }
    // The memory of a kept slab lives on while a copy of its descriptor is open.
    virtual void release(Slab& slab) noexcept = 0;
    // When it returns, the range reads as zeroes through every channel and by the CPU.
    virtual Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) = 0;
    // Copies a range within or between slabs of the device. When it returns, the copy is complete
    // for every channel and for the CPU. Throws what open_channel() throws.
    virtual Status copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                        std::uint64_t to_offset, std::uint64_t bytes);
    // Announces that the range will be written for the first time since it was allocated or
    // discarded, so that its memory can be allocated in one piece. Its contents stay.
    virtual void populate(const Slab&, std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {}
    // The contents of the range are no longer needed. Returns true if its memory was freed, so that
    // the range reads as zeroes.
    virtual bool discard(const Slab&, std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {
        return false;
    }
    // For one thread at a time. Throws if pinned memory or streams cannot be allocated.
    virtual std::unique_ptr<Channel> open_channel(const ChannelOptions& options) = 0;

    // Measures the cost of each copy path, in under a second. Channels that are opened later use
    // the result. Returns it as human-readable text; empty: there is nothing to measure. No channel
    // may be in use. Throws std::runtime_error.
    virtual std::string calibrate() { return {}; }
    // The result for restore_calibration() of a later process; empty: nothing is worth saving.
    virtual std::string calibration_state() const { return {}; }
    // Uses a saved result instead of measuring. Returns false, without effect, if the text is
    // invalid or belongs to other hardware or settings.
    virtual bool restore_calibration(std::string_view /*state*/) { return false; }

 private:
    std::uint32_t number_;
    PendingReleases releases_;
    SlabLenders lenders_;
    SlabBudget budget_;
};

}  // namespace gpunbd::storage
