#include "storage/devices/vulkan/vulkan_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "storage/devices/gpu/gpu_id.hpp"
#include "storage/devices/gpu/nvidia_card.hpp"
#include "storage/devices/vulkan/physical_device.hpp"
#include "storage/devices/vulkan/vulkan_device.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr const char* no_driver =
    "install the Vulkan driver of your GPU, for example "
    "mesa-vulkan-drivers for AMD and Intel";

// Those that have memory of their own come first: the first one is the default.
int preference(const PhysicalDevice& physical) {
    return physical.type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ? 0 : 1;
}

class VulkanDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "vulkan"; }
    bool drives_gpus() const override { return true; }
    config::DriverInfo info() const override {
        constexpr std::string_view purpose = "GPUs, whose memory the CPU cannot address directly";
        return {.form = "vulkan:N",
                .description =
                    "vulkan:N with the number, UUID or PCI address of any GPU that has a "
                    "Vulkan driver, for example vulkan:0",
                .example = "vulkan:0",
                .parse = [](std::string_view text) { return parse_gpu_id("vulkan", text); },
                .guess = guess_id,
                .settings = {{"mapped", purpose}, {"gpu_use", purpose}},
                .called = "--vulkan --opencl"};
    }
    diagnosis::Diagnoses diagnose(const diagnosis::Machine& machine) const override {
        return diagnose_gpus(*this, machine);
    }
    std::vector<std::string> enumerate(std::string& why_none) const override {
        std::vector<std::string> ids;
        try {
            const Instance instance;
            std::vector<PhysicalDevice> all = physical_devices(instance);
            std::ranges::stable_sort(all, {}, preference);
            for (const PhysicalDevice& physical : all) {
                if (!physical.on_cpu()) ids.push_back(describe(physical).id);
            }
            if (ids.empty()) why_none = fmt::format("Vulkan sees no GPU: {}", no_driver);
        } catch (const Unavailable& error) {
            why_none = fmt::format("Vulkan cannot be used: {}", error.what());
        }
        return ids;
    }
    std::optional<std::string> id_of(std::string_view identity) const override {
        if (!has_scheme_of(identity)) return std::nullopt;
        try {
            const Instance instance;
            for (const PhysicalDevice& physical : physical_devices(instance)) {
                const DeviceInfo its = describe(physical);
                if (its.identity == identity) return its.id;
            }
        } catch (const Unavailable&) {  // then it does not exist
        }
        return std::nullopt;
    }
    std::vector<DeviceInfo> only_by_name() const override {
        std::vector<DeviceInfo> found;
        try {
            const Instance instance;
            for (const PhysicalDevice& physical : physical_devices(instance)) {
                if (!physical.on_cpu()) continue;
                found.push_back(describe(physical));
                found.back().access = "on the CPU, for tests: used only if it is named";
            }
        } catch (const Unavailable&) {  // enumerate() reports it
        }
        return found;
    }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        std::shared_ptr<const Instance> instance;
        std::vector<PhysicalDevice> all;
        try {
            instance = std::make_shared<const Instance>();
            all = physical_devices(*instance);
        } catch (const Unavailable& error) {
            throw std::runtime_error(fmt::format("{}: {}", id, error.what()));
        }
        const auto found = std::ranges::find_if(all, [&](const PhysicalDevice& physical) {
            const DeviceInfo its = describe(physical);
            return is_gpu_named(id, physical.number, its.hardware, its.address);
        });
        if (found == all.end()) return nullptr;
        return open_vulkan_device(number, std::string(id), std::move(instance), *found, options);
    }
};

}  // namespace

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

const DeviceDriver& vulkan_driver() {
    static const VulkanDriver driver;
    return driver;
}

}  // namespace gpunbd::storage::vulkan
