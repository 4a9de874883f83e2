#include "storage/devices/vulkan/vulkan_diagnosis.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <vector>

#include "storage/devices/gpu/display_card.hpp"

namespace gpunbd::storage::vulkan {

using namespace diagnosis;

namespace {

// If the device cannot be opened, the finding contains the reason.
Diagnosis check_access_of(const DeviceDriver& driver, const std::string& id) {
    try {
        const auto gpu = driver.open(id, 0, {});
        if (gpu) return check_access(gpu->info());
        return fail("memory of " + id, "it does not exist any more", "gpunbd devices");
    } catch (const std::exception& error) {
        return fail("memory of " + id, error.what(), "");
    }
}

}  // namespace

Diagnosis check_access(const DeviceInfo& gpu) {
    const std::string what = "memory of " + gpu.id;
    if (!gpu.access.starts_with("not mapped")) return ok(what, gpu.access);
    return warn(what, gpu.access,
                "enable resizable BAR and above 4G decoding in the firmware; otherwise the GPU "
                "copies writes");
}

Diagnoses diagnose_gpus(const DeviceDriver& driver, const Machine& machine) {
    std::vector<std::string> cards;
    for (const char* vendor : {"0x1002", "0x8086"}) {
        for (std::string& card : display_cards(vendor, machine.root() + "/sys")) {
            cards.push_back(std::move(card));
        }
    }
    if (cards.empty()) return {};
    std::string why_none;
    const std::vector<std::string> found = driver.enumerate(why_none);
    const std::string what = fmt::format("devices of gpunbd, {}", driver.scheme());
    if (found.empty()) {
        return {warn(what, fmt::format("none, but there is {}: {}", cards.front(), why_none),
                     "install libvulkan1 and mesa-vulkan-drivers, and add the user of the server "
                     "to the group render")};
    }
    Diagnoses out{ok(what, std::to_string(found.size()))};
    for (const std::string& id : found) out.push_back(check_access_of(driver, id));
    return out;
}

}  // namespace gpunbd::storage::vulkan
