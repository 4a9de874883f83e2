#include "config/network.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>

namespace gpunbd::config {

namespace {

// The bits of the byte at `index` that are within the prefix.
std::uint8_t mask(std::uint32_t prefix, std::size_t index) {
    const auto before = static_cast<std::uint32_t>(index * 8);
    if (prefix <= before) return 0;
    return static_cast<std::uint8_t>(0xff00U >> std::min(prefix - before, 8U));
}

constexpr std::size_t max_zone = 15;  // bytes of the name of an interface

}  // namespace

bool IpAddress::mapped() const {
    if (!v6) return false;
    const auto zeroes = bytes.begin() + 10;
    return std::all_of(bytes.begin(), zeroes, [](std::uint8_t byte) { return byte == 0; }) &&
           bytes[10] == 0xff && bytes[11] == 0xff;
}

IpAddress IpAddress::unmapped() const {
    if (!mapped()) return *this;
    IpAddress v4;
    std::copy_n(bytes.begin() + mapped_prefix / 8, 4, v4.bytes.begin());
    return v4;
}

bool IpAddress::loopback() const {
    if (mapped()) return unmapped().loopback();
    if (!v6) return bytes[0] == 127;
    return std::all_of(bytes.begin(), bytes.end() - 1, [](std::uint8_t b) { return b == 0; }) &&
           bytes.back() == 1;
}

std::string IpAddress::text() const {
    std::array<char, INET6_ADDRSTRLEN> out{};
    ::inet_ntop(v6 ? AF_INET6 : AF_INET, bytes.data(), out.data(), out.size());
    return out.data();
}

std::optional<IpAddress> parse_ip(const std::string& text) {
    // inet_pton() would stop at a NUL byte.
    if (text.find('\0') != std::string::npos) return std::nullopt;
    IpAddress out;
    if (::inet_pton(AF_INET, text.c_str(), out.bytes.data()) == 1) return out;
    out = {.v6 = true};
    if (::inet_pton(AF_INET6, text.c_str(), out.bytes.data()) == 1) return out;
    return std::nullopt;
}

bool Network::holds(const IpAddress& other) const {
    if (other.v6 != address.v6) return false;
    for (std::size_t i = 0; i * 8 < prefix; ++i) {
        if (((other.bytes[i] ^ address.bytes[i]) & mask(prefix, i)) != 0) return false;
    }
    return true;
}

std::string Network::text() const {
    return prefix == address.bits() ? address.text() : fmt::format("{}/{}", address.text(), prefix);
}

Network network_of(IpAddress address, std::uint32_t prefix) {
    for (std::size_t i = 0; i != address.bytes.size(); ++i) address.bytes[i] &= mask(prefix, i);
    return {address, prefix};
}

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
