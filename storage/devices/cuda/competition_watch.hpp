// While kernels are stopped because another program computes on the GPU, this launches a tiny
// kernel from time to time, and allows kernels again when the other program has stopped. Otherwise
// the thread sleeps.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

class CompetitionWatch {
 public:
    // `state` outlives this object. Throws std::runtime_error.
    explicit CompetitionWatch(DeviceState& state);

    // Kernels have been stopped. Any thread.
    void begin();

 private:
    using Clock = Competition::Clock;

    void watch(const std::stop_token& stop);
    // Probes until kernels are allowed again or the device has failed.
    void probe_until_over(const std::stop_token& stop, std::unique_lock<std::mutex>& lock);
    // The duration of a lone kernel.
    Clock::duration probe(const std::stop_token& stop);

    DeviceState& state_;
    PinnedMemory word_;
    DeviceMemory scratch_;
    Stream stream_;
    std::uint32_t number_ = 0;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    bool wanted_ = false;
    std::jthread thread_;  // destroyed first
};

}  // namespace gpunbd::storage::cuda
