// Turns the options of an export into a volume that can be created, or a one-line error. Allocates
// no device memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/exports/device_registry.hpp"
#include "storage/origins/origin.hpp"
#include "storage/origins/origin_claim.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

struct VolumePlan {
    storage::VolumeOptions options;
    std::vector<storage::Device*> devices;
    std::vector<storage::Spill> spills;
    storage::Layout layout;
    std::unique_ptr<storage::Origin> origin;  // null: none
    storage::OriginClaim claim;               // of the origin
    storage::Device* reserve = nullptr;       // see OriginCache::Options
    std::string instead_of_gpu;               // why no GPU was found, if one was wanted; else empty
};

// Bytes of a device that other exports will take before this one.
using Promised = std::map<const storage::Device*, std::uint64_t>;

// Throws std::runtime_error.
VolumePlan plan_volume(const config::ExportOptions& wanted, DeviceRegistry& registry,
                       const Promised& promised = {});

// One line with the requested size, the available size, and a size that fits.
std::string error_text(const storage::CapacityError& error, const storage::VolumeOptions& options,
                       const std::vector<storage::Device*>& devices);

}  // namespace gpunbd::server
