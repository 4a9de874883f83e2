#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "storage/devices/channels.hpp"
#include "storage/pages/volume.hpp"
#include "storage/transfers/read_transfer.hpp"

namespace gpunbd::storage {

// Waits for copies without taking a CPU from clients.

inline void wait_for_device(Channels& channels) {
    constexpr std::chrono::microseconds interval{20};
    channels.poll();
    std::this_thread::sleep_for(interval);
}

// Receives the contents of a volume in order. Each function returns a problem, which ends the
// reading, if there is one.
class VolumeSink {
 public:
    virtual std::optional<std::string> hole(std::uint64_t length) = 0;
    // `length` bytes of data follow.
    virtual std::optional<std::string> run(std::uint64_t length) = 0;
    // A part of the run. `from`: null for zeroes.
    virtual std::optional<std::string> data(const std::byte* from, std::uint64_t length) = 0;

 protected:
    ~VolumeSink() = default;
};

// Reads a volume in order, on a thread of its own with channels of its own, beside clients.
class VolumeReader final : private TransferOwner {
 public:
    // For the calling thread, which also destroys it. Throws what Device::open_channel() throws.
    VolumeReader(Volume& volume, const ChannelOptions& options);

    // `size`: of the volume. Returns the problem of the sink or of a device, or that the volume was
    // resized meanwhile; empty: the whole volume was read. `progress` is called with the bytes that
    // are done.
    std::optional<std::string> read(std::uint64_t size, const std::stop_token& stop,
                                    VolumeSink& sink,
                                    const std::function<void(std::uint64_t)>& progress);

 private:
    void transfer_moved(Transfer& /*transfer*/) override {}
    std::optional<std::string> read(Range range, const std::stop_token& stop, VolumeSink& sink);
    // Lets the copies of a transfer that is given up end.
    void settle(ReadTransfer& transfer);

    Volume& volume_;
    Channels channels_;
    ClientAccount account_;
};

}  // namespace gpunbd::storage
