#include "server/tools/devices/subcommand.hpp"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "config/text_layout.hpp"
#include "server/base/process.hpp"
#include "server/exports/device_registry.hpp"
#include "server/logging/log.hpp"
#include "server/ublk/control.hpp"
#include "server/ublk/parameters.hpp"

namespace gpunbd::server {

namespace {

// The ublk devices of this machine.
struct UblkEntry {
    std::string path;        // "/dev/ublkb0"
    std::uint64_t size = 0;  // bytes
    std::string queues{};    // empty: the kernel tells it only to root
    std::string server{};    // likewise
};

std::uint64_t size_of(std::uint32_t id) {
    std::ifstream file(fmt::format("/sys/block/ublkb{}/size", id));
    std::uint64_t sectors = 0;
    file >> sectors;
    return sectors << ublk::sector_shift;
}

std::string server_of(const ublk::DeviceInfo& info) {
    const char* const program = ublk::Mark(info.mark).is_gpunbd() ? "gpunbd" : "another program";
    if (info.state == ublk::DeviceState::live) {
        return fmt::format("{}, process {}", program, info.server);
    }
    return fmt::format("none; requests wait for the next server of {}", program);
}

// In the order of their numbers.
std::vector<UblkEntry> list_ublk() {
    std::vector<UblkEntry> out;
    const std::vector<std::uint32_t> found = ublk::existing_ids();
    if (found.empty()) return out;
    const auto control = ublk::Control::open_if_permitted();
    for (const std::uint32_t id : found) {
        UblkEntry entry{.path = ublk::block_path(id), .size = size_of(id)};
        if (const auto info = control ? control->info(id) : std::nullopt) {
            entry.queues = fmt::format("{}, each for {} requests", info->queues, info->depth);
            entry.server = server_of(*info);
        }
        out.push_back(std::move(entry));
    }
    return out;
}

namespace json = boost::json;

// What is shown of a device.
struct Shown {
    storage::DeviceInfo info;
    std::string same_card;                        // ids, with commas
    std::optional<std::uint64_t> available = {};  // bytes; unset: it cannot be opened
    std::string calibration = {};                 // lines
};

struct Unusable {
    std::string id;
    std::string why;
};

struct Found {
    std::vector<Shown> devices = {};
    std::vector<Unusable> unusable = {};
    std::string no_gpu = {};  // the reason
};

Found find_devices(bool calibrate) {
    DeviceRegistry devices({}, calibrate);
    ListedCards cards;
    Found found;
    const auto add = [&](const std::string& id) {
        const storage::Device& device = devices.open(id);
        found.devices.push_back({.info = device.info(),
                                 .same_card = cards.add(device.info()),
                                 .available = device.available(),
                                 .calibration = devices.calibration(id)});
    };
    for (const std::string& id : devices.others()) add(id);
    const std::vector<std::string> gpus = devices.gpus(found.no_gpu);
    if (!gpus.empty()) found.no_gpu.clear();
    for (const std::string& id : gpus) {
        try {
            add(id);
        } catch (const std::exception& error) {
            found.unusable.push_back({id, error.what()});
        }
    }
    for (const storage::DeviceInfo& info : devices.only_by_name()) {
        found.devices.push_back({.info = info, .same_card = cards.add(info)});
    }
    return found;
}

void print_line(const char* name, const std::string& value) {
    if (value.empty()) return;
    fmt::print("{}", config::wrapped(fmt::format("  {}", name), value, 16));
}

void print_device(const Shown& shown) {
    const storage::DeviceInfo& info = shown.info;
    fmt::print("{}\n", info.id);
    print_line("name", info.name);
    print_line("UUID", info.hardware);
    print_line("same card", shown.same_card);
    print_line("driver", info.driver);
    print_line("memory", info.memory);
    print_line("queues", info.queues);
    print_line("total", config::human_size(info.total));
    if (shown.available) {
        print_line("available",
                   fmt::format("{}, beside a reserve of {}", config::human_size(*shown.available),
                               config::human_size(info.reserve)));
    }
    print_line("address", info.address);
    print_line("link", info.link);
    if (info.copy_engines != 0) print_line("copy engines", std::to_string(info.copy_engines));
    if (info.numa_node >= 0) print_line("NUMA node", std::to_string(info.numa_node));
    print_line("access", info.access);
    fmt::print("{}", shown.calibration);
}

void print_ublk(const UblkEntry& entry) {
    fmt::print("{}\n", entry.path);
    print_line("size", config::human_size(entry.size));
    print_line("queues", entry.queues);
    print_line("server", entry.server);
}

void print_text(const Found& found) {
    for (const Shown& each : found.devices) print_device(each);
    if (!found.no_gpu.empty()) {
        fmt::print(stderr, "{}", config::wrapped("no usable GPU:", found.no_gpu, 2));
    }
    for (const Unusable& each : found.unusable) {
        fmt::print(stderr, "{}", config::wrapped(each.id + ':', each.why, 2));
    }
    for (const UblkEntry& each : list_ublk()) print_ublk(each);
}

json::value text_or_null(const std::string& text) {
    return text.empty() ? json::value(nullptr) : json::value(config::repaired_utf8(text));
}

json::value object_of(const Shown& shown) {
    const storage::DeviceInfo& info = shown.info;
    return json::object{
        {"id", info.id},
        {"name", text_or_null(info.name)},
        {"uuid", text_or_null(info.hardware)},
        {"same_card", text_or_null(shown.same_card)},
        {"driver", text_or_null(info.driver)},
        {"memory", text_or_null(info.memory)},
        {"queues", text_or_null(info.queues)},
        {"total", info.total},
        {"available", shown.available ? json::value(*shown.available) : json::value(nullptr)},
        {"reserve", info.reserve},
        {"address", text_or_null(info.address)},
        {"link", text_or_null(info.link)},
        {"copy_engines", info.copy_engines},
        {"numa_node", info.numa_node < 0 ? json::value(nullptr) : json::value(info.numa_node)},
        {"access", text_or_null(info.access)},
        {"calibration", text_or_null(shown.calibration)}};
}

void print_json(const Found& found) {
    json::array devices;
    for (const Shown& each : found.devices) devices.push_back(object_of(each));
    json::array unusable;
    for (const Unusable& each : found.unusable) {
        unusable.emplace_back(json::object{{"id", each.id}, {"error", text_or_null(each.why)}});
    }
    json::array ublk;
    for (const UblkEntry& each : list_ublk()) {
        ublk.emplace_back(json::object{{"path", each.path},
                                       {"size", each.size},
                                       {"queues", text_or_null(each.queues)},
                                       {"server", text_or_null(each.server)}});
    }
    fmt::print("{}\n", json::serialize(json::object{{"devices", std::move(devices)},
                                                    {"unusable", std::move(unusable)},
                                                    {"no_gpu", text_or_null(found.no_gpu)},
                                                    {"ublk", std::move(ublk)}}));
}

}  // namespace

int list_devices(bool calibrate, bool as_json) {
    const Log log({.level = "warn"});  // to standard error
    const Found found = find_devices(calibrate);
    as_json ? print_json(found) : print_text(found);
    return found.unusable.empty() ? 0 : exit_failure;
}

}  // namespace gpunbd::server

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view json_details = R"(An object with the lists
.Va devices
and
.Va ublk ;
.Va unusable ,
a list of GPUs with
.Va id
and
.Va error ;
and
.Va no_gpu ,
the reason why there is no GPU, or null.
Sizes are bytes; unknown values are null.)";

}  // namespace

DevicesCommand::DevicesCommand()
    : Command(
          {.name = "devices",
           .called = "list ls info gpus",
           .brief = "List host memory and the GPUs that exports can use",
           .usage = "Usage: gpunbd devices [--calibrate] [--json]\n",
           .about = R"(Prints for each device the id, name, total and free memory, PCI address and
link, copy engines, and the ways in which gpunbd can access its memory. Large
windows into memory of PCI cards are listed with the user of the card, and
block devices that servers have made with ublk with their process.
)",
           .groups = {{"Flags",
                       {{.name = "--calibrate",
                         .brief = "Also measure copies between host and device",
                         .more =
                             ", and show the chunk size that 'gpunbd serve' would choose. Takes "
                             "a few seconds and some memory of each GPU.",
                         .store = into(calibrate)},
                        json_flag(json, json_details)}}},
           .examples = R"(  gpunbd devices
  gpunbd devices --calibrate
)",
           .ending = R"(Exit codes: 0 done; 1 failed at run time; 2 wrong usage.
See also: gpunbd(8)
)"}) {}

int DevicesCommand::run(const Commands&) { return server::list_devices(calibrate, json); }

}  // namespace gpunbd::tools
