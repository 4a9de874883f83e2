// State that the channels of one GPU share, for any driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "storage/devices/competition.hpp"
#include "storage/devices/gpu/revocable_slabs.hpp"

namespace gpunbd::storage {

struct GpuState {
    GpuState(std::string device_id, GpuUse use);

    const std::string id;  // "cuda:0"
    Competition competition;
    RevocableAccess revocable_access;
    // Groups of copies on the copy engines, over all channels.
    std::atomic<std::int32_t> engine_copies{0};

    bool failed() const { return failed_.load(std::memory_order_acquire); }
    // The device is lost: from now on all operations on it end with io_error. The first call logs
    // `what` was being done.
    void fail(std::string_view error, std::string_view what) noexcept;

 private:
    std::atomic<bool> failed_{false};
};

}  // namespace gpunbd::storage
