// Descriptions of the device drivers: the ids of their devices, and the settings that apply to
// them. The program registers its drivers before it parses options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::config {

struct DriverInfo {
    struct Setting {
        std::string_view key;           // of devices[]: "mapped"
        std::string_view purpose;       // "GPUs, ...", for messages
        std::string_view flag = "";     // of serve; it sets the key to true. Empty: none
        std::string_view summary = "";  // of the flag
        std::string_view called = "";   // its names in other programs
    };
    std::string_view scheme = "";  // "cuda"
    bool gpu = false;
    std::string_view form = "";         // "cuda:N"
    std::string_view description = "";  // "cuda:N with the GPU's number, for example cuda:0"
    std::string_view example = "";      // "cuda:0"
    std::string_view correction = "";   // what to write instead of a malformed id of this scheme
    // The canonical spelling of an id; nullopt if the text is not an id of this driver.
    std::optional<std::string> (*parse)(std::string_view text) = nullptr;
    // The id for another program's name of a device, given in lower case: "gpu0" -> "cuda:0";
    // empty if unknown.
    std::string (*guess)(std::string_view text) = nullptr;
    std::vector<Setting> settings = {};
    // Completions offer one id for each file that is named so, with a number appended. Empty: they
    // offer `form` itself.
    std::string_view device_files = "";
    bool completed = true;  // whether completions offer ids at all
    // Its devices only back pages that leave another device. No export can be created on them.
    bool spill_only = false;
    std::string_view called = "";           // flags of other programs that name such a device
    std::string_view library = "";          // that the devices need
    std::string_view library_version = "";  // in this build; empty: built without it
};

// Not thread-safe. Call once, at the start of the program.
void set_device_drivers(std::vector<DriverInfo> drivers);
const std::vector<DriverInfo>& device_drivers();

bool is_gpu(std::string_view device_id);
bool is_spill_only(std::string_view device_id);
// Whether the setting devices[].`key` applies to the device.
bool has_setting(std::string_view device_id, std::string_view key);
// The devices that have the setting, for messages; empty: all devices.
std::string_view purpose_of_setting(std::string_view key);
// The id of a GPU, if a driver supports GPUs.
std::string_view example_device();
// The devices that an export can use.
std::string device_forms();         // "host, cuda:N, pci:ADDRESS/BAR"
std::string device_descriptions();  // the same with an explanation of each, for a sentence

}  // namespace gpunbd::config
