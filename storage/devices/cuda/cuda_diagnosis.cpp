#include "storage/devices/cuda/cuda_diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "storage/devices/gpu/nvidia_card.hpp"
#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::storage::cuda {

using namespace diagnosis;

namespace {

constexpr std::uint64_t small_window = std::uint64_t{256}
                                       << 20;  // bytes: the window without resizable BAR

Diagnosis check_driver(const Machine& machine, const std::vector<std::string>& cards) {
    const auto version = machine.text("/proc/driver/nvidia/version");
    if (version) return ok("NVIDIA driver", version->substr(0, version->find('\n')));
    std::string remedy = gpu_remedy(cards, true);
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

// The size of a window is a power of two.
std::string size_text(std::uint64_t bytes) {
    return bytes >> 30 != 0 ? fmt::format("{} GiB", bytes >> 30)
                            : fmt::format("{} MiB", bytes >> 20);
}

Diagnosis check_window(const Machine& machine, const std::string& card) {
    std::uint64_t bytes = 0;  // of the largest BAR, because its index depends on the machine
    if (const auto found = read_pci_card(card, machine.root() + "/sys")) {
        for (const Bar& bar : found->bars) {
            if (bar.memory) bytes = std::max(bytes, bar.bytes);
        }
    }
    const std::string what = "memory of " + card + " that the CPU sees";
    if (bytes > small_window) return ok(what, size_text(bytes));
    return warn(what, size_text(bytes),
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
Diagnosis check_mapping_of(const DeviceDriver& driver, const std::string& id) {
    try {
        const auto gpu = driver.open(id, 0, {});
        if (gpu) return check_mapping(gpu->info());
        return fail("mapping of " + id, "it does not exist any more", "gpunbd devices");
    } catch (const std::exception& error) {
        return fail("mapping of " + id, error.what(), "");
    }
}

}  // namespace

Diagnosis check_mapping(const DeviceInfo& gpu) {
    const std::string what = "mapping of " + gpu.id;
    if (gpu.access.starts_with("mapped")) return ok(what, gpu.access);
    return warn(what, gpu.access,
                "install libvulkan1 and the Vulkan part of the driver; in a container set "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics");
}

Diagnoses diagnose_cards(const DeviceDriver& driver, const Machine& machine) {
    const std::vector<std::string> cards = nvidia_cards(machine.root() + "/sys");
    if (cards.empty()) {
        return {warn("GPU", "no NVIDIA card in this machine",
                     "use --device host to export host memory")};
    }
    Diagnoses out{check_driver(machine, cards), check_persistence(machine)};
    for (const std::string& card : cards) {
        out.push_back(check_window(machine, card));
        out.push_back(check_node(machine, card));
    }
    std::string why_none;
    const std::vector<std::string> found = driver.enumerate(why_none);
    const std::string what = fmt::format("devices of gpunbd, {}", driver.scheme());
    out.push_back(found.empty() ? fail(what, "none: " + why_none, "")
                                : ok(what, std::to_string(found.size())));
    for (const std::string& id : found) out.push_back(check_mapping_of(driver, id));
    return out;
}

}  // namespace gpunbd::storage::cuda
