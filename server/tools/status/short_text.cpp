#include "server/tools/status/short_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace gpunbd::status {
namespace {

// Uses the first unit in which the value is below `base`, or the last unit.
std::string scaled(double value, double base, std::string_view units) {
    if (!(value > 0)) return "0";
    std::size_t unit = 0;
    // A value that would round up to `base` uses the next unit.
    while (value >= base - 0.5 && unit + 1 != units.size()) {
        value /= base;
        ++unit;
    }
    if (value >= 9999.5) return ">9999";
    if (unit == 0) return fmt::format("{:.0f}", value);
    return value < 99.95 ? fmt::format("{:.1f}{}", value, units[unit])
                         : fmt::format("{:.0f}{}", value, units[unit]);
}

}  // namespace

std::string short_size(double bytes) { return scaled(bytes, 1024, " KMGTPE"); }

std::string short_count(double count) { return scaled(count, 1000, " kMGT"); }

std::string short_duration(double seconds) {
    if (!(seconds > 0)) return "-";
    if (seconds < 0.000'999'5) return fmt::format("{:.0f}us", std::max(seconds * 1e6, 1.0));
    if (seconds < 0.009'95) return fmt::format("{:.1f}ms", seconds * 1e3);
    if (seconds < 0.999'5) return fmt::format("{:.0f}ms", seconds * 1e3);
    if (seconds < 99.95) return fmt::format("{:.1f}s", seconds);
    return seconds < 9999.5 ? fmt::format("{:.0f}s", seconds) : ">9999";
}

std::string short_age(double seconds) {
    constexpr double longest = 1e9;
    const auto whole = static_cast<std::uint64_t>(std::clamp(seconds, 0.0, longest));
    if (whole < 60) return fmt::format("{}s", whole);
    if (whole < 3600) return fmt::format("{}m{:02}", whole / 60, whole % 60);
    if (whole < 86'400) return fmt::format("{}h{:02}", whole / 3600, whole / 60 % 60);
    return fmt::format("{}d", std::min<std::uint64_t>(whole / 86'400, 9999));
}

}  // namespace gpunbd::status
