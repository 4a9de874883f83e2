// Finishes the work that taking over has deferred, because it keeps the device busy: opens the
// channels of all workers, one after the other, then releases the mappings of the earlier server,
// then maps slabs. Mapping first would delay the opening of channels, and there may be no address
// space for both mappings.
#pragma once

#include <memory>
#include <vector>

#include "server/exports/export_registry.hpp"
#include "server/handover/retained_mappings.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Returns immediately. `workers` and `mappings`, which is null if nothing is kept, must outlive the
// workers' threads.
void finish_taking_over(const std::vector<std::unique_ptr<Worker>>& workers,
                        const ExportRegistry::Exports& exports, RetainedMappings* mappings);

}  // namespace gpunbd::server
