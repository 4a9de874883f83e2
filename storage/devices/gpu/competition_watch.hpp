#pragma once

#include <functional>
#include <thread>

#include "storage/base/mutex.hpp"
#include "storage/devices/gpu/gpu_state.hpp"

namespace gpunbd::storage {

// Detects device failures when no copy would: stores into a mapping raise no error, and writes
// would be acknowledged without an error.
class DeviceWatch {
 public:
    // Calls `check` from a thread of its own, four times a second until the device has failed. It
    // fails the device if that is lost, and does not throw. `state` outlives this object.
    DeviceWatch(const GpuState& state, std::function<void()> check);

 private:
    void watch(const std::stop_token& stop);

    const GpuState& state_;
    const std::function<void()> check_;
    Mutex mutex_;
    StoppableCondition stopped_;
    std::jthread thread_;  // destroyed first
};

// While kernels are stopped because another program computes on the GPU, this launches a tiny
// kernel from time to time, and allows kernels again when the other program has stopped. Otherwise
// the thread sleeps.
class CompetitionWatch {
 public:
    // Launches a lone kernel.
    struct Probe {
        std::function<bool()>
            launch;  // false: it cannot be launched; the channels report the error
        std::function<bool()> ended;
    };

    // The probe is called from one thread and does not throw. `state` outlives this object.
    CompetitionWatch(GpuState& state, Probe probe);

    // Kernels have been stopped. Any thread.
    void begin();

 private:
    using Clock = Competition::Clock;

    void watch(const std::stop_token& stop);
    // Probes until kernels are allowed again or the device has failed.
    void probe_until_over(const std::stop_token& stop) REQUIRES(mutex_);
    // The duration of a lone kernel.
    Clock::duration probe(const std::stop_token& stop);

    GpuState& state_;
    const Probe probe_;
    Mutex mutex_;
    StoppableCondition changed_;
    bool wanted_ GUARDED_BY(mutex_) = false;
    std::jthread thread_;  // destroyed first
};

}  // namespace gpunbd::storage
