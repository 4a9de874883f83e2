// From the options of exports to exports with volumes, keeping the volumes that a new configuration
// leaves as they are.
#pragma once

#include <string>
#include <vector>

#include "server/exports/device_registry.hpp"
#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

// Either every export, or every reason why not; then nothing has changed. `current` is what is
// offered now.
struct MadeExports {
    ExportRegistry::Exports exports;
    std::vector<std::string> problems;
};
MadeExports make_exports(const std::vector<config::ExportOptions>& options, DeviceRegistry& devices,
                         const ExportRegistry::Exports& current);

}  // namespace gpunbd::server
