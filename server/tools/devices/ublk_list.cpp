#include "server/tools/devices/ublk_list.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <optional>

#include "server/ublk/abandoned.hpp"
#include "server/ublk/control.hpp"
#include "server/ublk/parameters.hpp"

namespace gpunbd::server {

namespace {

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

}  // namespace

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

}  // namespace gpunbd::server
