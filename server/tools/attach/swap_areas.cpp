#include "server/tools/attach/swap_areas.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "config/size.hpp"
#include "server/tools/attach/mounts.hpp"

namespace gpunbd::attach {
namespace {

constexpr std::uint64_t kib = 1024;
// Reserve for the kernel and for programs that allocate memory during swapoff.
constexpr std::uint64_t least_margin = std::uint64_t{16} << 20;
constexpr std::uint64_t margin_part = 32;  // of the total memory

// A value of /proc/meminfo, in bytes.
std::optional<std::uint64_t> memory_number(const std::string& root, const std::string& name) {
    std::ifstream file(root + "proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string key;
        std::uint64_t value = 0;
        if (words >> key >> value && key == name + ":") return value * kib;
    }
    return std::nullopt;
}

std::uint64_t free_elsewhere(const SwapArea& area, const std::string& root) {
    std::uint64_t out = 0;
    for (const SwapArea& each : read_swap_areas(root)) {
        const bool is_memory = each.file.find("/zram") != std::string::npos;
        if (each.file != area.file && !is_memory) out += each.size - each.used;
    }
    return out;
}

}  // namespace

std::vector<SwapArea> read_swap_areas(const std::string& root) {
    std::vector<SwapArea> out;
    std::ifstream file(root + "proc/swaps");
    std::string line;
    std::getline(file, line);  // headings
    while (std::getline(file, line)) {
        std::istringstream words(line);
        SwapArea area;
        std::string type;
        words >> area.file >> type >> area.size >> area.used;
        area.file = unescaped(area.file);
        area.size *= kib;
        area.used *= kib;
        out.push_back(std::move(area));
    }
    return out;
}

std::optional<Failure> no_room_for(const SwapArea& area, const std::string& root) {
    const auto available = memory_number(root, "MemAvailable");
    if (!available || area.used == 0) return std::nullopt;
    const std::uint64_t margin =
        least_margin + memory_number(root, "MemTotal").value_or(0) / margin_part;
    const std::uint64_t elsewhere = free_elsewhere(area, root);
    if (area.used + margin <= *available + elsewhere) return std::nullopt;
    return Failure{fmt::format(
        "the swapped-out memory on {} ({}) does not fit into RAM: {} are available there, {} in "
        "other swap, and {} have to stay free; end programs, or add other swap, first",
        area.file, config::human_size(area.used), config::human_size(*available),
        config::human_size(elsewhere), config::human_size(margin))};
}

}  // namespace gpunbd::attach
