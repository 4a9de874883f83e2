#include <fmt/format.h>

#include <algorithm>

#include "config/size.hpp"
#include "server/tools/doctor/topics.hpp"
#include "storage/devices/drivers/device_drivers.hpp"
#include "storage/devices/gpu/nvidia_card.hpp"
#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint64_t small_window = std::uint64_t{256}
                                       << 20;  // bytes: the window without resizable BAR

Diagnosis check_driver(const Machine& machine, const std::vector<std::string>& cards) {
    const auto version = machine.text("/proc/driver/nvidia/version");
    if (version) return ok("NVIDIA driver", version->substr(0, version->find('\n')));
    std::string remedy = storage::gpu_remedy(cards, true);
    return fail("NVIDIA driver", fmt::format("not loaded; the machine has {} cards", cards.size()),
                remedy.empty() ? "install it" : std::move(remedy));
}

Diagnosis check_persistence(const Machine& machine) {
    if (machine.has("/run/nvidia-persistenced/socket")) {
        return ok("persistence mode", "nvidia-persistenced runs");
    }
    // Without the daemon, persistence mode may be enabled until the machine restarts.
    if (machine.first_line_of(
            {"nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader"}) == "Enabled") {
        return ok("persistence mode", "on until the machine restarts");
    }
    return warn("persistence mode",
                "off: the driver may reset an unused GPU, which loses kept contents",
                "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1");
}

Diagnosis check_window(const Machine& machine, const std::string& card) {
    std::uint64_t bytes = 0;  // of the largest BAR, because its index depends on the machine
    if (const auto found = storage::read_pci_card(card, machine.root() + "/sys")) {
        for (const storage::Bar& bar : found->bars) {
            if (bar.memory) bytes = std::max(bytes, bar.bytes);
        }
    }
    const std::string what = "memory of " + card + " that the CPU sees";
    if (bytes > small_window) return ok(what, config::human_size(bytes));
    return warn(what, config::human_size(bytes),
                "enable resizable BAR and above 4G decoding in the firmware; otherwise the GPU "
                "copies writes");
}

Diagnosis check_node(const Machine& machine, const std::string& card) {
    const auto node = machine.text("/sys/bus/pci/devices/" + card + "/numa_node");
    const std::string what = "NUMA node of " + card;
    if (node && *node != "-1") return ok(what, *node);
    if (!machine.has("/sys/devices/system/node/node1")) return ok(what, "the machine has only one");
    return warn(what, "unknown, so workers run on any node",
                "update the firmware, or enable its ACPI tables for NUMA");
}

// If the device cannot be opened, the finding contains the reason.
Diagnosis check_mapping_of(const storage::DeviceDriver& driver, const std::string& id) {
    try {
        const auto gpu = driver.open(id, 0, {});
        if (gpu) return check_mapping(gpu->info());
        return fail("mapping of " + id, "it does not exist any more", "gpunbd devices");
    } catch (const std::exception& error) {
        return fail("mapping of " + id, error.what(), "");
    }
}

}  // namespace

Diagnosis check_mapping(const storage::DeviceInfo& gpu) {
    const std::string what = "mapping of " + gpu.id;
    if (gpu.access.starts_with("mapped")) return ok(what, gpu.access);
    return warn(what, gpu.access,
                "install libvulkan1 and the Vulkan part of the driver; in a container set "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics");
}

Diagnoses check_gpus(const Machine& machine) {
    Diagnoses out;
    const std::vector<std::string> cards = storage::nvidia_cards(machine.root() + "/sys");
    if (cards.empty()) {
        out.push_back(warn("GPU", "no NVIDIA card in this machine",
                           "use --device host to export host memory"));
        return out;
    }
    out.push_back(check_driver(machine, cards));
    out.push_back(check_persistence(machine));
    for (const std::string& card : cards) {
        out.push_back(check_window(machine, card));
        out.push_back(check_node(machine, card));
    }
    for (const storage::DeviceDriver* driver : storage::device_drivers()) {
        if (!driver->drives_gpus()) continue;
        std::string why_none;
        const auto found = driver->enumerate(why_none);
        const std::string what = fmt::format("devices of gpunbd, {}", driver->scheme());
        out.push_back(found.empty() ? fail(what, "none: " + why_none, "")
                                    : ok(what, fmt::format("{}", found.size())));
        for (const std::string& id : found) out.push_back(check_mapping_of(*driver, id));
    }
    return out;
}

}  // namespace gpunbd::server
