#include "storage/devices/cuda/cuda_diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "storage/devices/gpu/gpu_id.hpp"
#include "storage/devices/gpu/nvidia_card.hpp"
#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::string_view prefix = "cuda:";
constexpr std::size_t max_digits = 3;
#ifdef GPUNBD_CUDA_VERSION
constexpr std::string_view library_version = GPUNBD_CUDA_VERSION;
#else
constexpr std::string_view library_version = {};
#endif

bool is_number(std::string_view text) {
    return text.size() <= max_digits && text.find_first_not_of("0123456789") == text.npos;
}

std::optional<std::string> parse(std::string_view text) { return parse_gpu_id("cuda", text); }

// "gpu0", "cuda0", "0", "/dev/nvidia0", "gpu-" and a UUID, a PCI address
std::string guess(std::string_view text) {
    if (text.size() > max_digits) {
        if (const auto id = parse(fmt::format("{}{}", prefix, text))) return *id;
    }
    constexpr std::string_view folder = "/dev/";
    if (text.starts_with(folder)) text.remove_prefix(folder.size());
    const std::size_t letters =
        std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
    const std::string_view kind = text.substr(0, letters);
    constexpr std::array<std::string_view, 6> others{"", "cuda", "gpu", "nvidia", "vram", "card"};
    if (std::ranges::find(others, kind) == others.end()) return {};
    std::string_view number = text.substr(letters);
    const bool has_separator = !number.empty() && !kind.empty() && !is_number(number.substr(0, 1));
    if (has_separator) number.remove_prefix(1);
    if (!is_number(number)) return {};
    number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
    return std::string(prefix) + (number.empty() ? "0" : std::string(number));
}

}  // namespace

config::DriverInfo cuda_info() {
    constexpr std::string_view purpose = "GPUs, whose memory the CPU cannot address directly";
    return {.form = "cuda:N",
            .description =
                "cuda:N with the number, UUID or PCI address of an NVIDIA GPU, for example cuda:0",
            .example = "cuda:0",
            .parse = parse,
            .guess = guess,
            .settings = {{"mapped", purpose}, {"gpu_use", purpose}, {"revocable", "NVIDIA GPUs"}},
            .device_files = "/dev/nvidia",
            .called = "--cuda --gpu --gpus --card",
            .library = "CUDA",
            .library_version = library_version};
}

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
