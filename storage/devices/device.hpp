// A device: one pool of memory (`host`, `cuda:N`, `pci:ADDRESS/BAR`). It allocates slabs, clears
// them, and opens the channels through which workers move bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "storage/devices/channel.hpp"
#include "storage/devices/cpu_address.hpp"
#include "storage/devices/pending_releases.hpp"
#include "storage/status.hpp"

namespace gpunbd::storage {

// What `gpunbd devices` prints. Empty texts are not printed.
struct DeviceInfo {
    std::string id;    // "host", "cuda:0"
    std::string name;  // "NVIDIA H200"
    // What names the hardware, whatever number it has after a restart: "host", "GPU-" and a UUID,
    // of a BAR its id.
    std::string identity;
    std::string address;  // PCI address
    std::string link;     // "PCIe gen 5 x16"
    std::string access;   // which access paths work, and why others do not
    int copy_engines = 0;
    std::uint64_t total = 0;    // bytes
    std::uint64_t reserve = 0;  // bytes left to the device's other users
    int numa_node = -1;
};

// How a device is used at a moment, beyond what volumes know.
struct DeviceUse {
    std::uint64_t mapped = 0;  // bytes that the CPU addresses
    // Does another program compute on it? Unset: not known, or it is no GPU.
    std::optional<bool> others_compute = {};
    std::uint64_t competition_noticed = 0;  // how often that began
};

enum class Provision {
    thin,  // slabs come on demand and go when they are empty
    full,  // all slabs are there from the start, resident, and stay
};

// How a slab is wanted.
struct SlabRequest {
    std::uint64_t bytes = 0;
    Provision provision = Provision::thin;
    // Another process is to take it over when this one has ended: it has a descriptor.
    bool kept = false;
};

// What has to be written down of a kept slab, beside its descriptor and the identity of its device,
// so that another process can take it over.
struct SlabRecord {
    std::uint64_t bytes = 0;
    Provision provision = Provision::thin;
    std::uint8_t kind = 0;  // Slab::kind
};

// One device allocation, many pages long.
struct Slab {
    CpuAddress cpu;             // null: only through a channel
    std::uint64_t address = 0;  // in the device's own address space
    std::uint64_t bytes = 0;    // 0: no slab
    std::uint64_t handle = 0;   // the device's own name for it
    bool resident = false;      // allocated with Provision::full
    std::uint8_t kind = 0;      // how it was made; only its device knows what that means
    // Of a kept slab: the memory lives as long as this, or a copy of it, is open anywhere. It is
    // the slab's; -1: the memory ends with the process.
    int descriptor = -1;
};

class Device {
 public:
    explicit Device(std::uint32_t number) : number_(number) {}
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // Dense, process-wide: workers index their channels by it.
    std::uint32_t number() const { return number_; }
    virtual const DeviceInfo& info() const = 0;
    // Bytes that can still be allocated, less the reserve.
    virtual std::uint64_t available() const = 0;
    virtual bool failed() const { return false; }
    // `allocated`: bytes, of all slabs of it that there are.
    virtual DeviceUse use(std::uint64_t allocated) const { return {.mapped = allocated}; }
    // Do allocating and clearing take so long that a thread should do them ahead of need?
    virtual bool slow_to_allocate() const { return false; }
    // Only one process can have it open.
    virtual bool exclusive() const { return false; }
    PendingReleases& releases() { return releases_; }

    // Descriptors, the device's own, of the files by which the CPU addresses its memory: the driver
    // undoes these mappings when the last copy of them is closed, which takes long, and may be in
    // another process.
    virtual std::vector<int> mapping_files() const { return {}; }
    // The CPU was to address its memory, and there is no room for that: another process may have
    // it.
    virtual bool lacks_mapping() const { return false; }
    // Why no slab of this device can be kept, in a few words; empty: they can.
    virtual std::string why_not_kept() const { return "its memory ends with the process"; }

    // All of these may be called from any thread.
    // A slab that reads as zeroes. no_space: nothing was allocated. io_error: among others, it is
    // to be kept and cannot be.
    virtual Status allocate(const SlabRequest& request, Slab& out) = 0;
    // Takes over a slab that a device of the same identity has made in another process, with its
    // contents, and whatever the capacity: the memory is taken already. What can be proven of it
    // is. ok: the descriptor is the slab's from now on. Else it is the caller's still, and the log
    // says why.
    virtual Status adopt(int /*descriptor*/, const SlabRecord&, Slab& /*out*/) {
        return Status::io_error;
    }
    // Where the CPU addresses a slab from now on that adopt() has given no address, because that
    // takes long. Null: nowhere. Not while the slab is released.
    virtual std::byte* address(const Slab&) { return nullptr; }
    // A kept slab's memory lives on where its descriptor has been copied.
    virtual void release(Slab& slab) noexcept = 0;
    // Returns once the range reads as zeroes to every channel and to the CPU.
    virtual Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) = 0;
    // The range is about to be filled for the first time, or the first since it was discarded: its
    // memory may be had at once and in one piece. Its contents stay.
    virtual void populate(const Slab&, std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {}
    // The range's contents are not needed any more; true: it has been given back to the system for
    // the time being and reads as zeroes.
    virtual bool discard(const Slab&, std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {
        return false;
    }
    // For the calling worker's thread alone, which also destroys it. Throws where pinned memory or
    // streams cannot be had.
    virtual std::unique_ptr<Channel> open_channel(const ChannelOptions& options) = 0;

    // Measures what each way of copying costs, in under a second, and has channels that are opened
    // from now on follow what it finds, which it also tells for people. Empty: there is nothing to
    // measure. No channel may be in use meanwhile. Throws std::runtime_error.
    virtual std::string calibrate() { return {}; }
    // What was found, for restore_calibration() of a later process; empty: nothing that lasts.
    virtual std::string calibration_state() const { return {}; }
    // Instead of measuring. False: that was not found on this device as it is now, or is no such
    // text; nothing has changed.
    virtual bool restore_calibration(std::string_view /*state*/) { return false; }

 private:
    std::uint32_t number_;
    PendingReleases releases_;
};

}  // namespace gpunbd::storage
