// A device for tests: wraps another whose memory the CPU can address, hides that, so that every
// byte passes the staged pipeline, but for writes as short as a script says, and fails or delays
// what the script says. The pipeline of a GPU is tested with it on machines that have none.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "storage/devices/device.hpp"

namespace gpunbd::storage {

// Counts down over all channels; set from any thread.
struct FaultScript {
    static constexpr std::int64_t never = -1;
    std::atomic<std::int64_t> allocations_until_failure{
        never};  // 0: the next one fails, and all after
    std::atomic<std::int64_t> adoptions_until_failure{never};  // 0: the next one fails; then never
    std::atomic<std::int64_t> copies_until_failure{never};     // 0: the next one fails; then never
    std::atomic<std::int64_t> copies_until_dead{never};        // the device fails for good there
    std::atomic<std::uint32_t> polls_per_copy{1};              // a copy ends after so many polls
    std::atomic<bool> hold{false};                             // no copy ends while this is set
    std::atomic<std::int64_t> copies_until_held{never};        // it is set when so many have ended
    // Slabs that are taken over have an address for the CPU only from Device::address() on.
    std::atomic<bool> addressed_later{false};
    std::atomic<bool> unaddressable{false};  // and not even then
    // Bytes. Writes no longer than this are received in place; set before slabs are allocated.
    std::atomic<std::uint32_t> in_place_up_to{0};
    std::atomic<std::uint64_t> copies_seen{0};
};

std::unique_ptr<Device> make_faulty_device(std::unique_ptr<Device> inner, FaultScript& script);

}  // namespace gpunbd::storage
