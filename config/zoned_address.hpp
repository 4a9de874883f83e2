// An IP address to listen on, with the interface of a link-local one: "fe80::1%eth0".
#pragma once

#include <optional>
#include <string>

#include "config/network.hpp"

namespace gpunbd::config {

struct ZonedAddress {
    IpAddress address;
    std::string zone;  // the interface, by name or number; empty: none
    bool operator==(const ZonedAddress&) const = default;

    bool link_local() const;  // fe80::/10
    std::string text() const;
};

// Parses a numeric address. One of IPv6 may have a zone.
std::optional<ZonedAddress> parse_zoned_address(const std::string& text);

}  // namespace gpunbd::config
