// Whoever is swapped to has all that requests need before there is a client: later there may be no
// memory for it.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include "server/exports/export_registry.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// For exports with swap: provisioners have their threads; and each worker has room in its heap, and
// channels that have run every path once, when its future is ready. That throws as
// Device::open_channel() does.
std::vector<std::future<void>> warm_up(const std::vector<std::unique_ptr<Worker>>& workers,
                                       const ExportRegistry::Exports& exports);

}  // namespace gpunbd::server
