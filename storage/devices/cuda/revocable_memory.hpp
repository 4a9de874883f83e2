// The revocable memory of a CUDA device: its slabs, and the thread of its EvictionWatch, which
// sleeps while there are none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

#include "storage/base/mutex.hpp"
#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/gpu/eviction_watch.hpp"
#include "storage/devices/gpu/revocable_slabs.hpp"
#include "storage/devices/host/system_memory.hpp"

namespace gpunbd::storage::cuda {

class RevocableMemory {
 public:
    // At most `limit` bytes. `total` and `reserve` are those of the device. `state` outlives this
    // object. Throws std::runtime_error with one line if that is not possible.
    RevocableMemory(DeviceState& state, std::uint64_t limit, std::uint64_t total,
                    std::uint64_t reserve);
    RevocableMemory(const RevocableMemory&) = delete;
    RevocableMemory& operator=(const RevocableMemory&) = delete;
    ~RevocableMemory();

    // Any thread.
    //
    // Whether a slab of this size may be revocable now. The caller prevents concurrent allocations.
    bool has_room(std::uint64_t bytes);
    // The pages of the slab are on the device, but not cleared.
    cudaError_t allocate(std::uint64_t bytes, std::uint64_t& address);
    void free(std::uint64_t address) noexcept;

    std::uint64_t bytes() const { return slabs_.bytes(); }
    std::uint64_t yielded() const { return slabs_.yielded(); }
    std::uint64_t evictions() const { return watch_.evictions(); }
    // See DeviceUse::revocable_excess.
    std::uint64_t excess() const { return std::min(watch_.excess(), slabs_.bytes()); }

 private:
    EvictionWatch::Calls calls(std::uint64_t reserve);
    void watch(const std::stop_token& stop);
    void log_failure(cudaError_t error) noexcept;

    DeviceState& state_;
    const SystemMemory host_;
    const std::uint64_t limit_;
    bool shortage_logged_ = false;  // of host memory
    bool failure_logged_ = false;   // of a call of the watch
    Stream stream_;
    RevocableSlabs slabs_;
    EvictionWatch watch_;
    Mutex mutex_;
    StoppableCondition changed_;
    std::jthread thread_;  // destroyed first
};

}  // namespace gpunbd::storage::cuda
