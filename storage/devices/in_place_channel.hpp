// The channel to memory that the CPU caches: payload is received into pages and sent from them, see
// Device::sends_in_place().
#pragma once

#include "storage/base/private_memory.hpp"
#include "storage/devices/channel.hpp"

namespace gpunbd::storage {

class InPlaceChannel final : public Channel {
 public:
    // Throws std::bad_alloc.
    explicit InPlaceChannel(const ChannelOptions& options);
    bool receives_into(const Slab&, std::uint32_t) const override { return true; }

 protected:
    // Copies pages that must not be sent in place, and zeroes. Long runs are spread over several
    // polls.
    void progress(CopyQueue& queued) override;

 private:
    const PrivateMemory memory_;  // read staging
};

}  // namespace gpunbd::storage
