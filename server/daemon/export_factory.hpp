// From the options of exports to exports with volumes, keeping the volumes that a new configuration
// leaves as they are.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "server/exports/device_registry.hpp"
#include "server/exports/export_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/handover/retained_contents.hpp"

namespace gpunbd::server {

// How volumes are made and end.
struct VolumeLife {
    std::stop_token stop = {};           // making them is given up, which is a problem like others
    VolumeDisposal* disposal = nullptr;  // null: they end with who lets go of them
    RetainedContents* contents = nullptr;  // null: nobody keeps any; then `disposal` is needed, too
};

// Either every export, or every reason why not; then nothing has changed. `current` is what is
// offered now.
struct MadeExports {
    ExportRegistry::Exports exports;
    std::vector<std::string> problems;
    // Exports that are not offered, since their kept contents cannot be taken over, and why.
    struct Refused {
        std::string name;
        std::string why;
    };
    std::vector<Refused> refused = {};
};
MadeExports make_exports(const std::vector<config::ExportOptions>& options, DeviceRegistry& devices,
                         const ExportRegistry::Exports& current, const VolumeLife& life = {});

}  // namespace gpunbd::server
