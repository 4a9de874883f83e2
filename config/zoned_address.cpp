#include "config/zoned_address.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpunbd::config {

namespace {

constexpr std::size_t max_zone = 15;  // bytes of the name of an interface

}  // namespace

bool ZonedAddress::link_local() const {
    return address.v6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

std::string ZonedAddress::text() const {
    return zone.empty() ? address.text() : fmt::format("{}%{}", address.text(), zone);
}

std::optional<ZonedAddress> parse_zoned_address(const std::string& text) {
    const std::size_t mark = text.find('%');
    const auto address = parse_ip(text.substr(0, mark));
    if (!address) return std::nullopt;
    if (mark == std::string::npos) return ZonedAddress{*address, {}};
    std::string zone = text.substr(mark + 1);
    const bool named = !zone.empty() && zone.size() <= max_zone &&
                       std::ranges::all_of(zone, [](char c) { return c > ' ' && c < 127; });
    if (!address->v6 || !named) return std::nullopt;
    return ZonedAddress{*address, std::move(zone)};
}

}  // namespace gpunbd::config
