#include "server/device_list.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>

#include "server/device_registry.hpp"

namespace gpunbd::server {

namespace {

void print_line(const char* name, const std::string& value) {
    if (!value.empty()) fmt::print("  {:<13}{}\n", name, value);
}

void print_device(const storage::Device& device) {
    const storage::DeviceInfo& info = device.info();
    fmt::print("{}\n", info.id);
    print_line("name", info.name);
    print_line("total", fmt::format("{} MiB", info.total >> 20));
    print_line("available", fmt::format("{} MiB (a reserve of {} MiB is left to others)",
                                        device.available() >> 20, info.reserve >> 20));
    print_line("address", info.address);
    print_line("link", info.link);
    if (info.copy_engines != 0) print_line("copy engines", std::to_string(info.copy_engines));
    if (info.numa_node >= 0) print_line("NUMA node", std::to_string(info.numa_node));
    print_line("access", info.access);
}

}  // namespace

int list_devices(bool calibrate) {
    DeviceRegistry devices({}, calibrate);
    print_device(devices.open("host"));
    std::string why_none;
    const std::vector<std::string> gpus = DeviceRegistry::gpus(why_none);
    if (gpus.empty()) fmt::print("no GPU can be used: {}\n", why_none);
    bool all_work = true;
    for (const std::string& id : gpus) {
        try {
            print_device(devices.open(id));
            fmt::print("{}", devices.calibration(id));
        } catch (const std::exception& error) {
            fmt::print(stderr, "{}: {}\n", id, error.what());
            all_work = false;
        }
    }
    return all_work ? 0 : 1;
}

}  // namespace gpunbd::server
