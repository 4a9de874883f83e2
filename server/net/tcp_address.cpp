#include "server/net/tcp_address.hpp"

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "config/network.hpp"
#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

// The number of the interface; 0: none is named. Throws AddressError.
std::uint32_t scope_of(const config::TcpListener& options) {
    const auto parsed = config::parse_zoned_address(options.address);
    if (!parsed || parsed->zone.empty()) return 0;
    std::array<char, IF_NAMESIZE> name{};
    if (const unsigned by_name = ::if_nametoindex(parsed->zone.c_str())) return by_name;
    std::uint32_t number = 0;
    const char* const end = parsed->zone.data() + parsed->zone.size();
    const auto [stop, error] = std::from_chars(parsed->zone.data(), end, number);
    const bool whole = error == std::errc{} && stop == end;
    if (whole && ::if_indextoname(number, name.data()) != nullptr) return number;
    throw AddressError(
        AddressError::Kind::absent,
        fmt::format("{}: this machine has no interface {}; `ip address` lists those it has",
                    name_of(options), config::in_quotes(parsed->zone)));
}

bool is_v6(const config::TcpListener& options) {
    return options.address.find(':') != std::string::npos;
}

// In network order; empty: the text is not an address.
std::string address_bytes(const config::TcpListener& options) {
    const auto parsed = config::parse_zoned_address(options.address);
    if (!parsed) return {};
    const auto& bytes = parsed->address.bytes;
    return {bytes.begin(), bytes.begin() + parsed->address.bits() / 8};
}

}  // namespace

std::string name_of(const config::TcpListener& options) {
    return is_v6(options) ? fmt::format("[{}]:{}", options.address, options.port)
                          : fmt::format("{}:{}", options.address, options.port);
}

OwnedFd bind_tcp(const config::TcpListener& options) {
    const std::string bytes = address_bytes(options);
    if (bytes.empty()) {
        throw AddressError(AddressError::Kind::other,
                           name_of(options) + ": not a numeric IPv4 or IPv6 address");
    }
    const bool v6 = is_v6(options);
    OwnedFd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) throw tcp_error(options, errno);
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage address{};
    socklen_t length = sizeof(sockaddr_in);
    if (v6) {
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        auto& in6 = reinterpret_cast<sockaddr_in6&>(address);
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(options.port);
        in6.sin6_scope_id = scope_of(options);
        std::memcpy(&in6.sin6_addr, bytes.data(), bytes.size());
        length = sizeof in6;
    } else {
        auto& in = reinterpret_cast<sockaddr_in&>(address);
        in.sin_family = AF_INET;
        in.sin_port = htons(options.port);
        std::memcpy(&in.sin_addr, bytes.data(), bytes.size());
    }
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
        throw tcp_error(options, errno);
    }
    return fd;
}

AddressError tcp_error(const config::TcpListener& options, int error) {
    using Kind = AddressError::Kind;
    const std::string where = name_of(options);
    switch (error) {
        case EADDRINUSE: {
            Holder holder = tcp_port_holder(address_bytes(options), options.port);
            const std::string text = fmt::format(
                "{}: the port is taken{}; end that program, or choose another port ({})", where,
                holder.by(), options.port_option.text);
            return {Kind::taken, text, std::move(holder)};
        }
        case EADDRNOTAVAIL:
            return {Kind::absent,
                    fmt::format("{}: this machine has no address {}; `ip address` lists those it "
                                "has, and {} means all of {}",
                                where, options.address, is_v6(options) ? "::" : "0.0.0.0",
                                is_v6(options) ? "IPv6" : "IPv4")};
        case EAFNOSUPPORT:
            return {Kind::absent, fmt::format("{}: this machine has no {}; listen on {} instead",
                                              where, is_v6(options) ? "IPv6" : "IPv4",
                                              is_v6(options) ? "127.0.0.1" : "::1")};
        case EACCES:
        case EPERM:
            return {Kind::other,
                    fmt::format("{}: uid {} may not take this port; choose one above 1023 ({}), or "
                                "give gpunbd the capability CAP_NET_BIND_SERVICE",
                                where, ::geteuid(), options.port_option.text)};
        default:
            return {Kind::other,
                    fmt::format("{}: cannot listen there: {}", where, std::strerror(error))};
    }
}

}  // namespace gpunbd::server
