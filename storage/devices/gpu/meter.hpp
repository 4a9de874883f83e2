// Measures copies through a channel, for calibration and benchmarks.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "storage/devices/device.hpp"

namespace gpunbd::storage {

// Copies that are enqueued together and awaited together.
struct Round {
    Copy::Kind kind = Copy::Kind::read;
    std::uint32_t bytes = 0;  // of each copy
    std::uint32_t copies = 1;
};

class Meter final : private CopyOwner {
 public:
    // The slab and the channel outlive this object, which takes staging memory of the channel as
    // needed.
    Meter(const Slab& slab, Channel& channel);

    // The median duration of a round in microseconds, measured for `budget`. Each round uses other
    // locations of the slab. Throws std::runtime_error if a copy fails.
    double median_us(const Round& round, std::chrono::microseconds budget);

 private:
    void copy_done(Copy& copy) override;
    void run(const Round& round, std::byte* staging);

    const Slab& slab_;
    Channel& channel_;
    std::vector<Copy> copies_;
    std::vector<double> durations_;
    std::uint64_t place_ = 0;  // the offset in the slab, in bytes
    std::uint32_t pending_ = 0;
    bool failed_ = false;
};

}  // namespace gpunbd::storage
