// What taking contents over has put off so that clients are served sooner: it keeps the device busy
// for a while, and who opens a channel meanwhile would wait. So the workers open theirs first, one
// after the other, since clients open theirs now as well.
#pragma once

#include <memory>
#include <vector>

#include "server/exports/export_registry.hpp"
#include "server/worker/worker.hpp"

namespace gpunbd::server {

// Returns at once. `workers` stay until their threads have ended.
void finish_taking_over(const std::vector<std::unique_ptr<Worker>>& workers,
                        const ExportRegistry::Exports& exports);

}  // namespace gpunbd::server
