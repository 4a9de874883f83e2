// A test device that wraps another device. It hides the CPU addresses of the memory, so that copies
// use the staging pipeline as on a GPU, and fails or delays operations as a script says.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "storage/devices/device.hpp"

namespace gpunbd::storage {

// Countdowns over all channels. May be set from any thread.
struct FaultScript {
    static constexpr std::int64_t never = -1;
    std::atomic<std::int64_t> allocations_until_failure{
        never};  // 0: the next one fails, and all later ones
    std::atomic<std::int64_t> take_overs_until_failure{never};  // 0: only the next one fails
    std::atomic<std::int64_t> copies_until_failure{never};      // 0: only the next one fails
    std::atomic<std::int64_t> copies_until_dead{
        never};  // 0: the device fails permanently at the next one
    std::atomic<std::uint32_t> polls_per_copy{1};        // a copy ends after so many polls
    std::atomic<bool> hold{false};                       // while it is set, no copy ends
    std::atomic<std::int64_t> copies_until_held{never};  // sets `hold` after so many copies
    // Slabs that were taken over have no CPU address before Device::address().
    std::atomic<bool> addressed_later{false};
    std::atomic<bool> unaddressable{false};  // and none after it
    // Bytes. Writes up to this length are received in place; set before slabs are allocated.
    std::atomic<std::uint32_t> in_place_up_to{0};
    std::atomic<bool> revocable{false};              // slabs are that are allocated from now on
    std::atomic<std::uint64_t> revocable_excess{0};  // see DeviceUse
    std::atomic<std::uint64_t> copies_seen{0};
    std::atomic<std::uint64_t> zero_copies_seen{0};
    std::atomic<std::uint64_t> revocable_copies_seen{0};
};

std::unique_ptr<Device> make_faulty_device(std::unique_ptr<Device> inner, FaultScript& script);

}  // namespace gpunbd::storage
