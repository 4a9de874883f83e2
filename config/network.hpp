// Internet addresses and networks of them, as rules of access name them: compared bit by bit, never
// as text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::config {

inline constexpr std::uint32_t mapped_prefix = 96;  // bits, of ::ffff:0:0/96

struct IpAddress {
    bool v6 = false;
    std::array<std::uint8_t, 16> bytes{};  // in network order; of IPv4 the first 4
    bool operator==(const IpAddress&) const = default;

    std::uint32_t bits() const { return v6 ? 128 : 32; }
    bool mapped() const;  // IPv4, written as IPv6: ::ffff:10.0.0.1
    IpAddress unmapped() const;
    bool loopback() const;
    std::string text() const;
};

// Numeric, without a zone; as it is written, so that what is mapped is IPv6.
std::optional<IpAddress> parse_ip(const std::string& text);

// The addresses whose first `prefix` bits are those of `address`, which has none behind them.
struct Network {
    IpAddress address;
    std::uint32_t prefix = 0;  // bits
    bool operator==(const Network&) const = default;

    // Of its own family alone. What is mapped is to be unmapped first.
    bool holds(const IpAddress& other) const;
    bool holds_all() const { return prefix == 0; }
    // "10.0.0.0/8"; of a single address without its prefix.
    std::string text() const;
};
// Clears what is behind the prefix.
Network network_of(IpAddress address, std::uint32_t prefix);

}  // namespace gpunbd::config
