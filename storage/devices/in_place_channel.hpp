// The channel to memory that the CPU caches: payload is received into pages and sent from them.
#pragma once

#include "storage/devices/channel.hpp"

namespace gpunbd::storage {

class InPlaceChannel final : public Channel {
 public:
    using Channel::Channel;
    bool receives_into(const Slab&, std::uint32_t) const override { return true; }
    bool sends_from(const Slab&, std::uint32_t) const override { return true; }

 protected:
    // Only zeroing uses the channel. Long runs are spread over several polls.
    void progress(CopyQueue& queued) override;
};

}  // namespace gpunbd::storage
