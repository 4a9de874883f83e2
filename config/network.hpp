// IP addresses and networks, for access rules. They are compared as bits, never as text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::config {

inline constexpr std::uint32_t mapped_prefix = 96;  // bits, of ::ffff:0:0/96

struct IpAddress {
    bool v6 = false;
    std::array<std::uint8_t, 16> bytes{};  // in network order; IPv4 uses the first 4
    bool operator==(const IpAddress&) const = default;

    std::uint32_t bits() const { return v6 ? 128 : 32; }
    bool mapped() const;  // an IPv4-mapped IPv6 address: ::ffff:10.0.0.1
    IpAddress unmapped() const;
    bool loopback() const;
    std::string text() const;
};

// Parses a numeric address without a zone. IPv4-mapped addresses stay IPv6.
std::optional<IpAddress> parse_ip(const std::string& text);

// The addresses with the first `prefix` bits of `address`, whose other bits are zero.
struct Network {
    IpAddress address;
    std::uint32_t prefix = 0;  // bits
    bool operator==(const Network&) const = default;

    // False for the other address family. Callers unmap IPv4-mapped addresses first.
    bool holds(const IpAddress& other) const;
    bool holds_all() const { return prefix == 0; }
    // "10.0.0.0/8"; a single address has no prefix.
    std::string text() const;
};
// Clears the bits after the prefix.
Network network_of(IpAddress address, std::uint32_t prefix);

// An IP address to listen on, with the interface of a link-local one: "fe80::1%eth0".
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
