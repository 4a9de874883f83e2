// Writes a volume, on a thread of its own with channels of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "storage/devices/channels.hpp"
#include "storage/pages/volume.hpp"
#include "storage/transfers/write_transfer.hpp"

namespace gpunbd::storage {

class VolumeWriter final : private TransferOwner {
 public:
    // For the calling thread, which also destroys it. Throws what Device::open_channel() throws.
    VolumeWriter(Volume& volume, const ChannelOptions& options);

    // Writes `length` bytes at `offset`. `fill` stores the next bytes in the
    // memory of the volume, in order, all of each span. Both return the problem; empty: none.
    using Fill = std::function<std::string(std::span<std::byte> memory)>;
    std::string write(std::uint64_t offset, std::uint64_t length, const Fill& fill);

 private:
    void transfer_moved(Transfer& /*transfer*/) override {}

    Volume& volume_;
    Channels channels_;
    ClientAccount account_;
};

}  // namespace gpunbd::storage
