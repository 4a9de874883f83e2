#include "server/tools/attach/mounts.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "config/size.hpp"

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

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// A line of /proc/self/mountinfo; proc(5).
Mount read_mount(const std::string& line) {
    std::istringstream words(line);
    Mount out;
    std::string skipped;
    words >> out.id >> out.parent >> out.numbers >> skipped >> out.place;
    while (words >> skipped && skipped != "-") {
    }
    words >> out.type >> out.source;
    out.place = unescaped(out.place);
    out.source = unescaped(out.source);
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

std::string unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) &&
            is_octal(text[i + 2]) && is_octal(text[i + 3])) {
            out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                     (text[i + 3] - '0'));
            i += 3;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::vector<Mount> read_mounts(const std::string& root) {
    std::vector<Mount> out;
    std::ifstream file(root + "proc/self/mountinfo");
    for (std::string line; std::getline(file, line);) out.push_back(read_mount(line));
    return out;
}

}  // namespace gpunbd::attach
