#include "storage/devices/gpu/gpu_id.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "storage/devices/gpu/pci.hpp"

namespace gpunbd::storage {

namespace {

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

std::optional<std::string> parse_gpu_id(std::string_view scheme, std::string_view text) {
    if (!text.starts_with(scheme) || !text.substr(scheme.size()).starts_with(':')) {
        return std::nullopt;
    }
    std::string device(text.substr(scheme.size() + 1));
    if (is_number(device)) return std::string(text);
    if (const auto address = parse_pci_address(device)) {
        return fmt::format("{}:{}", scheme, *address);
    }
    for (char& c : device) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (device.starts_with("gpu-")) device.erase(0, uuid_prefix.size());
    if (!is_uuid(device)) return std::nullopt;
    return fmt::format("{}:{}{}", scheme, uuid_prefix, device);
}

bool is_gpu_named(std::string_view id, std::uint32_t number, std::string_view hardware,
                  std::string_view address) {
    id.remove_prefix(std::min(id.find(':'), id.size() - 1) + 1);
    return id == hardware || id == address || id == std::to_string(number);
}

}  // namespace gpunbd::storage
