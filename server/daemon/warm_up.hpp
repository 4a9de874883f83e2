// Allocates everything that requests need before the first client, because memory may not be
// available later.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include "server/exports/export_registry.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// For exports with swap: starts the threads of provisioners. Each worker reserves heap memory,
// opens its channels and runs every path once; its future then becomes ready, with the exception of
// Device::open_channel() if it throws.
std::vector<std::future<void>> warm_up(const std::vector<std::unique_ptr<Worker>>& workers,
                                       const ExportRegistry::Exports& exports);

}  // namespace gpunbd::server
