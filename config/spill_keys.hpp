// The keys of an item of devices[].spill. One of them is the id of a device, so that, unlike those
// of other mappings, they are not all known in advance.
#pragma once

#include <string>
#include <string_view>

#include "config/devices/device_drivers.hpp"
#include "config/options.hpp"
#include "config/rules.hpp"
#include "config/schema_visitors.hpp"
#include "config/value_kinds.hpp"

namespace gpunbd::config {

inline Kind<std::uint64_t> spill_size() { return bytes({64 * KiB, rules::max_export_size}); }

// An item names either a device, with its size, or the file of a driver for files.
template <class V>
void write_spill(V& v, const SpillOptions& spill) {
    const std::string& id = spill.device;
    if (!is_spill_only(id)) return v.value(id, spill.size, spill_size());
    const std::size_t colon = id.find(':');
    v.value(std::string_view(id).substr(0, colon), id.substr(colon + 1), path());
    v.value("size", spill.size, spill_size());
    v.value("encrypt", spill.encrypt, boolean());
}

template <class V>
void list_spill_keys(V& v, auto& spill) {
    std::string_view device;
    for (const DriverInfo& driver : device_drivers()) {
        if (driver.spill_only) {
            v.value(driver.scheme, spill.device, path(),
                    {.words = "none", .about = R"(: the path of a file that takes pages.
It is created, needs
.Va size ,
and is allocated in full when the server starts.
Only its owner can read it, its contents end with the server, and only one server can use it.)"});
        } else if (device.empty()) {
            device = driver.form;
            v.value(
                device, spill.size, spill_size(),
                {.words = "none",
                 .about = R"(: how much memory of this device takes pages, for all exports together.
The key is the id of the device, which can also be another GPU.)"});
        }
    }
    v.value("size", spill.size, spill_size(),
            {.words = "none", .about = R"(, for files only, where it must be given.)"});
    v.value(
        "encrypt", spill.encrypt, boolean(),
        {.about =
             R"(, for files only: encrypt the pages with a key that exists only in the memory of the
server, by AES-256-XTS.)"});
}

}  // namespace gpunbd::config
