// Opening a channel to a GPU takes 20 ms, in which the driver lets other channels of the process
// wait. This opens those of all workers at a time when clients do not notice.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Each worker calls `first` and opens its channels to these devices. Its future is ready then, and
// throws as Device::open_channel() does.
std::vector<std::future<void>> open_channels(
    const std::vector<std::unique_ptr<Worker>>& workers,
    const std::vector<storage::Device*>& devices, void (*first)() = [] {});

}  // namespace gpunbd::server
