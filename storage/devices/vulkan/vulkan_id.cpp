#include "storage/devices/vulkan/vulkan_id.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::string_view prefix = "vulkan:";
constexpr std::string_view uuid_prefix = "GPU-";
constexpr std::size_t max_digits = 3;

bool is_number(std::string_view text) {
    return !text.empty() && text.size() <= max_digits &&
           text.find_first_not_of("0123456789") == text.npos &&
           (text.size() == 1 || text[0] != '0');
}

bool is_uuid(std::string_view text) {
    constexpr std::string_view form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    return std::ranges::equal(text, form, [](char c, char wanted) {
        if (wanted == '-') return c == '-';
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
}

}  // namespace

std::optional<std::string> parse_id(std::string_view text) {
    if (!text.starts_with(prefix)) return std::nullopt;
    std::string device(text.substr(prefix.size()));
    if (is_number(device)) return std::string(text);
    for (char& c : device) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (device.starts_with("gpu-")) device.erase(0, uuid_prefix.size());
    if (!is_uuid(device)) return std::nullopt;
    return fmt::format("{}{}{}", prefix, uuid_prefix, device);
}

std::string guess_id(std::string_view text) {
    constexpr std::array<std::string_view, 6> others{"vulkan", "vk",    "amd",
                                                     "radeon", "intel", "opencl"};
    const std::size_t letters =
        std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
    if (std::ranges::find(others, text.substr(0, letters)) == others.end()) return {};
    std::string_view number = text.substr(letters);
    if (!number.empty() && (number[0] == ':' || number[0] == '-')) number.remove_prefix(1);
    if (number.empty()) number = "0";
    return is_number(number) ? fmt::format("{}{}", prefix, number) : std::string();
}

std::string identity_of(std::string_view hardware) { return fmt::format("{}{}", prefix, hardware); }

bool is_named(std::string_view id, std::uint32_t number, std::string_view hardware) {
    id.remove_prefix(std::min(prefix.size(), id.size()));
    return id == hardware || id == std::to_string(number);
}

}  // namespace gpunbd::storage::vulkan
