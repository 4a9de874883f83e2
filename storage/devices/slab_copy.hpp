// Copies between slabs of any two devices, through staging memory.
#pragma once

#include <cstdint>
#include <memory>
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
    SlabCopier();
    ~SlabCopier();
    SlabCopier(const SlabCopier&) = delete;
    SlabCopier& operator=(const SlabCopier&) = delete;

    // Opens the channel to the device ahead of need. Blocks. Throws what Device::open_channel()
    // throws.
    void open(Device& device) EXCLUDES(mutex_);
    // Any thread; one copy at a time. Blocks. Throws what Device::open_channel() throws.
    Status copy(SlabPosition from, SlabPosition to, std::uint64_t bytes) EXCLUDES(mutex_);

 private:
    struct Opened {
        const Device* device;
        std::unique_ptr<Channel> channel;
    };
    Channel& channel_to(Device& device) REQUIRES(mutex_);

    Mutex mutex_;
    std::vector<Opened> opened_ GUARDED_BY(mutex_);  // one for each device
};

}  // namespace gpunbd::storage
