// Copies between slabs of any two devices, through staging memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/base/status.hpp"

namespace gpunbd::storage {

class Channel;
class Device;
struct Slab;

// Bytes of a slab from `offset` on.
struct SlabPosition {
    Device& device;
    const Slab& slab;
    std::uint64_t offset = 0;
};

// Its channels stay open for later copies: opening one of a GPU takes 4 to 230 ms, and blocks other
// calls of the driver meanwhile. It must not outlive the devices that it has copied between.
class SlabCopier {
 public:
    // `chunk`: bytes that are copied at once.
    explicit SlabCopier(std::uint32_t chunk = default_chunk);
    ~SlabCopier();
    SlabCopier(const SlabCopier&) = delete;
    SlabCopier& operator=(const SlabCopier&) = delete;

    // Opens the channel to the device ahead of need. Blocks. Throws what Device::open_channel()
    // throws.
    void open(Device& device) EXCLUDES(mutex_);
    // Closes the channels, unless there was a copy since the last call.
    void close_if_idle() EXCLUDES(mutex_);
    // Any thread; one copy at a time. Blocks. Throws what Device::open_channel() throws.
    Status copy(SlabPosition from, SlabPosition to, std::uint64_t bytes) EXCLUDES(mutex_);
    // Puts the bytes from `done` on into `memory`: staging memory, or the slab itself.
    using Read = std::function<Status(std::uint64_t done, std::span<std::byte> memory)>;
    // The same for contents from elsewhere. An error of `read` ends it.
    Status fill(SlabPosition to, std::uint64_t bytes, const Read& read) EXCLUDES(mutex_);
    // Takes the bytes from `done` on out of `memory`: staging memory, or the slab itself.
    using Write = std::function<Status(std::uint64_t done, std::span<const std::byte> memory)>;
    // The same in the other direction.
    Status drain(SlabPosition from, std::uint64_t bytes, const Write& write) EXCLUDES(mutex_);

 private:
    struct Opened {
        const Device* device;
        std::unique_ptr<Channel> channel;
    };
    Channel& channel_to(Device& device) REQUIRES(mutex_);

    // A page of the default size. While pages move, each chunk waits behind copies of all moves.
    static constexpr std::uint32_t default_chunk = 2 << 20;

    const std::uint32_t chunk_;
    Mutex mutex_;
    bool used_ GUARDED_BY(mutex_) = false;           // since close_if_idle()
    std::vector<Opened> opened_ GUARDED_BY(mutex_);  // one for each device
};

}  // namespace gpunbd::storage
