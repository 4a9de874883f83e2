// Opens the GPU channels of all workers before clients are affected: opening one takes 30 ms, and
// the driver blocks the other channels of the process for up to 10 ms of that.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Each worker calls `first` and opens its channels to these devices. Its future then becomes ready,
// with the exception of Device::open_channel() if it throws.
std::vector<std::future<void>> open_channels(
    const std::vector<std::unique_ptr<Worker>>& workers,
    const std::vector<storage::Device*>& devices, void (*first)() = [] {});

}  // namespace gpunbd::server
