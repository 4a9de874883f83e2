#include "config/devices/device_drivers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpunbd::config {
namespace {

std::vector<DriverInfo>& registered() {
    static std::vector<DriverInfo> drivers;
    return drivers;
}

const DriverInfo* driver_of(std::string_view device_id) {
    const auto found = std::ranges::find(registered(), device_id.substr(0, device_id.find(':')),
                                         &DriverInfo::scheme);
    return found == registered().end() ? nullptr : &*found;
}

const DriverInfo::Setting* find_setting(const DriverInfo& driver, std::string_view key) {
    const auto found = std::ranges::find(driver.settings, key, &DriverInfo::Setting::key);
    return found == driver.settings.end() ? nullptr : &*found;
}

std::vector<const DriverInfo*> drivers_of_exports() {
    std::vector<const DriverInfo*> out;
    for (const DriverInfo& driver : registered()) {
        if (!driver.spill_only) out.push_back(&driver);
    }
    return out;
}

}  // namespace

void set_device_drivers(std::vector<DriverInfo> drivers) { registered() = std::move(drivers); }

const std::vector<DriverInfo>& device_drivers() { return registered(); }

bool is_gpu(std::string_view device_id) {
    const DriverInfo* driver = driver_of(device_id);
    return driver != nullptr && driver->gpu;
}

bool is_spill_only(std::string_view device_id) {
    const DriverInfo* driver = driver_of(device_id);
    return driver != nullptr && driver->spill_only;
}

bool has_setting(std::string_view device_id, std::string_view key) {
    const DriverInfo* driver = driver_of(device_id);
    return driver != nullptr && find_setting(*driver, key) != nullptr;
}

std::string_view purpose_of_setting(std::string_view key) {
    for (const DriverInfo& driver : registered()) {
        if (const auto* setting = find_setting(driver, key)) return setting->purpose;
    }
    return {};
}

std::string_view example_device() {
    const auto gpu = std::ranges::find_if(registered(), &DriverInfo::gpu);
    if (gpu != registered().end()) return gpu->example;
    return registered().empty() ? std::string_view() : registered().front().example;
}

std::string device_forms() {
    std::vector<std::string_view> forms;
    for (const DriverInfo* driver : drivers_of_exports()) forms.push_back(driver->form);
    return fmt::format("{}", fmt::join(forms, ", "));
}

std::string device_descriptions() {
    const std::vector<const DriverInfo*> drivers = drivers_of_exports();
    std::string out;
    for (const DriverInfo* driver : drivers) {
        const bool last = driver == drivers.back();
        out += fmt::format("{}{}", out.empty() ? "" : last ? ", or " : ", ", driver->description);
    }
    return out;
}

}  // namespace gpunbd::config
