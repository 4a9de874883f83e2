#include "server/tools/status/sanitized_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
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

struct CodePoint {
    std::uint32_t value = 0;
    std::size_t bytes = 0;  // 0: invalid
};

constexpr std::array<std::uint32_t, 5> least_of_length{0, 0, 0x80, 0x800, 0x10000};

std::size_t length_by(unsigned char first) {
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first < 0xe0) return 2;
    if (first >= 0xe0 && first < 0xf0) return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

CodePoint decoded(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t bytes = length_by(first);
    if (bytes == 0 || bytes > text.size()) return {};
    std::uint32_t value = bytes == 1 ? first : first & (0x7fU >> bytes);
    for (std::size_t i = 1; i != bytes; ++i) {
        const auto next = static_cast<unsigned char>(text[i]);
        if ((next & 0xc0U) != 0x80) return {};
        value = (value << 6U) | (next & 0x3fU);
    }
    const bool surrogate = value >= 0xd800 && value <= 0xdfff;
    if (value < least_of_length.at(bytes) || value > 0x10ffff || surrogate) return {};
    return {value, bytes};
}

struct CodeRange {
    std::uint32_t first;
    std::uint32_t last;
};

template <std::size_t n>
bool in_one_of(const std::array<CodeRange, n>& ranges, std::uint32_t value) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const CodeRange& each) {
        return value >= each.first && value <= each.last;
    });
}

// Control characters, combining marks, marks of writing direction, private use.
constexpr std::array<CodeRange, 15> without_columns{{{0, 0x1f},
                                                     {0x7f, 0x9f},
                                                     {0xad, 0xad},
                                                     {0x300, 0x36f},
                                                     {0x61c, 0x61c},
                                                     {0x180b, 0x180f},
                                                     {0x1ab0, 0x1aff},
                                                     {0x1dc0, 0x1dff},
                                                     {0x200b, 0x200f},
                                                     {0x2028, 0x202e},
                                                     {0x2060, 0x206f},
                                                     {0x20d0, 0x20ff},
                                                     {0xe000, 0xf8ff},
                                                     {0xfe00, 0xfe2f},
                                                     {0xe0000, 0x10ffff}}};
constexpr std::uint32_t byte_order_mark = 0xfeff;

// Chinese, Japanese, Korean, full-width forms, and pictographs.
constexpr std::array<CodeRange, 13> two_columns{{{0x1100, 0x115f},
                                                 {0x2e80, 0x303e},
                                                 {0x3041, 0x4dbf},
                                                 {0x4e00, 0xa4cf},
                                                 {0xa960, 0xa97f},
                                                 {0xac00, 0xd7a3},
                                                 {0xf900, 0xfaff},
                                                 {0xfe30, 0xfe6f},
                                                 {0xff01, 0xff60},
                                                 {0xffe0, 0xffe6},
                                                 {0x1f300, 0x1f64f},
                                                 {0x1f680, 0x1faff},
                                                 {0x20000, 0x3fffd}}};

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

std::string sanitized(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const CodePoint point = decoded(text);
        const bool shown = point.bytes != 0 && point.value != byte_order_mark &&
                           !in_one_of(without_columns, point.value);
        const std::size_t bytes = std::max<std::size_t>(point.bytes, 1);
        out += shown ? text.substr(0, bytes) : "?";
        text.remove_prefix(bytes);
    }
    return out;
}

Character first_character(std::string_view sanitized_text) {
    const CodePoint point = decoded(sanitized_text);
    return {point.bytes, in_one_of(two_columns, point.value) ? 2U : 1U};
}

std::size_t columns_of(std::string_view sanitized_text) {
    std::size_t columns = 0;
    while (!sanitized_text.empty()) {
        const Character next = first_character(sanitized_text);
        columns += next.columns;
        sanitized_text.remove_prefix(next.bytes);
    }
    return columns;
}

std::string fitted(std::string_view sanitized_text, std::size_t columns) {
    const bool whole = columns_of(sanitized_text) <= columns;
    const std::size_t room = whole || columns == 0 ? columns : columns - 1;
    std::string out;
    std::size_t used = 0;
    while (!sanitized_text.empty()) {
        const Character next = first_character(sanitized_text);
        if (used + next.columns > room) break;
        out += sanitized_text.substr(0, next.bytes);
        used += next.columns;
        sanitized_text.remove_prefix(next.bytes);
    }
    if (!whole && columns > 0) {
        out += '~';
        ++used;
    }
    return out.append(columns - used, ' ');
}

}  // namespace gpunbd::status
