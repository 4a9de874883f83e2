// Turns the options of an export into a volume that can be created, or a one-line error. Allocates
// no device memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/exports/device_registry.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/origins/origin.hpp"
#include "storage/origins/origin_claim.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

// An origin that is open, and what its cache needs besides.
struct OriginPlan {
    std::unique_ptr<storage::Origin> origin;  // null: none
    storage::OriginClaim claim;
    storage::Device* reserve = nullptr;  // see OriginCache::Options
};

struct VolumePlan {
    storage::VolumeOptions options;
    std::vector<storage::Device*> devices;
    std::vector<storage::Spill> spills;
    storage::Layout layout;
    OriginPlan origin;
    std::string instead_of_gpu;  // why no GPU was found, if one was wanted; else empty
};

// Bytes of a device that other exports will take before this one.
using Promised = std::map<const storage::Device*, std::uint64_t>;

// The locks on origins that a predecessor has handed over, by Origin::name().
using OriginLocks = std::map<std::string, OwnedFd>;

// These throw std::runtime_error. `locks`: takes that of the origin; null: it gets a new one.
VolumePlan plan_volume(const config::ExportOptions& wanted, DeviceRegistry& registry,
                       const Promised& promised = {}, OriginLocks* locks = nullptr);
// Opens the origin of an export for a volume on this device.
OriginPlan plan_origin(const config::ExportOptions& wanted, DeviceRegistry& registry,
                       const storage::Device& device, OriginLocks* locks);

// One line with the requested size, the available size, and a size that fits.
std::string error_text(const storage::CapacityError& error, const storage::VolumeOptions& options,
                       const std::vector<storage::Device*>& devices);

}  // namespace gpunbd::server
