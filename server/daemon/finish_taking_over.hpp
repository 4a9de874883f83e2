// What taking contents over has put off so that clients are served sooner: it keeps the device busy
// for a while, and who opens a channel meanwhile would wait. So the workers open theirs first, one
// after the other, since clients open theirs now as well. Then what an earlier server had mapped is
// undone: there may be no room for both.
#pragma once

#include <memory>
#include <vector>

#include "server/exports/export_registry.hpp"
#include "server/handover/retained_mappings.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Returns at once. `workers` and `mappings`, which is null where nothing is kept, stay until the
// workers' threads have ended.
void finish_taking_over(const std::vector<std::unique_ptr<Worker>>& workers,
                        const ExportRegistry::Exports& exports, RetainedMappings* mappings);

}  // namespace gpunbd::server
