// Waits for copies without taking a CPU from clients.
#pragma once

#include <chrono>
#include <thread>

#include "storage/devices/channels.hpp"

namespace gpunbd::storage {

inline void wait_for_device(Channels& channels) {
    constexpr std::chrono::microseconds interval{20};
    channels.poll();
    std::this_thread::sleep_for(interval);
}

}  // namespace gpunbd::storage
