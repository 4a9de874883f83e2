#include "server/tools/devices/device_list.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>

#include "config/size.hpp"
#include "config/wrapped_text.hpp"
#include "server/exports/device_registry.hpp"
#include "server/logging/log.hpp"
#include "server/tools/devices/listed_cards.hpp"
#include "server/tools/devices/ublk_list.hpp"

namespace gpunbd::server {

namespace {

void print_line(const char* name, const std::string& value) {
    if (value.empty()) return;
    fmt::print("{}", config::wrapped(fmt::format("  {}", name), value, 16));
}

void print_info(const storage::DeviceInfo& info, const std::string& same_card,
                const std::string& available) {
    fmt::print("{}\n", info.id);
    print_line("name", info.name);
    print_line("UUID", info.hardware);
    print_line("same card", same_card);
    print_line("driver", info.driver);
    print_line("memory", info.memory);
    print_line("queues", info.queues);
    print_line("total", config::human_size(info.total));
    print_line("available", available);
    print_line("address", info.address);
    print_line("link", info.link);
    if (info.copy_engines != 0) print_line("copy engines", std::to_string(info.copy_engines));
    if (info.numa_node >= 0) print_line("NUMA node", std::to_string(info.numa_node));
    print_line("access", info.access);
}

void print_device(const storage::Device& device, ListedCards& cards) {
    const storage::DeviceInfo& info = device.info();
    print_info(info, cards.add(info),
               fmt::format("{}, beside a reserve of {}", config::human_size(device.available()),
                           config::human_size(info.reserve)));
}

void print_ublk(const UblkEntry& entry) {
    fmt::print("{}\n", entry.path);
    print_line("size", entry.size);
    print_line("queues", entry.queues);
    print_line("server", entry.server);
}

}  // namespace

int list_devices(bool calibrate) {
    const Log log({.level = "warn"});  // to standard error
    DeviceRegistry devices({}, calibrate);
    ListedCards cards;
    for (const std::string& id : devices.others()) print_device(devices.open(id), cards);
    std::string why_none;
    const std::vector<std::string> gpus = devices.gpus(why_none);
    if (gpus.empty()) {
        fmt::print(stderr, "{}", config::wrapped("no usable GPU:", why_none, 2));
    }
    bool all_work = true;
    for (const std::string& id : gpus) {
        try {
            print_device(devices.open(id), cards);
            fmt::print("{}", devices.calibration(id));
        } catch (const std::exception& error) {
            fmt::print(stderr, "{}", config::wrapped(id + ':', error.what(), 2));
            all_work = false;
        }
    }
    for (const storage::DeviceInfo& info : devices.only_by_name()) {
        print_info(info, cards.add(info), {});
    }
    for (const UblkEntry& each : list_ublk()) print_ublk(each);
    return all_work ? 0 : 1;
}

}  // namespace gpunbd::server
