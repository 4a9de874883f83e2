// What an export asks of which devices: from its options to a volume that can be made, or the one
// line that says why it cannot. Takes no memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/exports/device_registry.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

struct VolumePlan {
    storage::VolumeOptions options;
    std::vector<storage::Device*> devices;
    storage::Layout layout;
    std::string instead_of_gpu;  // why no GPU was found, where one was wanted; else empty
};

// Bytes that others will take of a device before this export comes to it.
using Promised = std::map<const storage::Device*, std::uint64_t>;

// Throws std::runtime_error.
VolumePlan plan_volume(const config::ExportOptions& wanted, DeviceRegistry& registry,
                       const Promised& promised = {});

// In one line: what was asked, what there is, and what would fit.
std::string misfit_text(const storage::Misfit& misfit, const storage::VolumeOptions& options,
                        const std::vector<storage::Device*>& devices);

}  // namespace gpunbd::server
