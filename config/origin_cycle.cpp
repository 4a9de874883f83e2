#include "config/origin_cycle.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "config/nbd_target.hpp"
#include "config/network.hpp"
#include "config/quote.hpp"

namespace gpunbd::config {

namespace {

// Whether an interface of this machine has the address.
bool is_of_this_machine(const IpAddress& address) {
    if (address.loopback()) return true;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return false;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
        const sockaddr* const its = each->ifa_addr;
        if (its == nullptr || its->sa_family != (address.v6 ? AF_INET6 : AF_INET)) continue;
        std::array<char, NI_MAXHOST> text{};
        const socklen_t length = address.v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        if (::getnameinfo(its, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
            continue;
        }
        const auto parsed = parse_zoned_address(text.data());
        if (parsed && parsed->address == address) return true;
    }
    return false;
}

bool is_host_name(std::string_view host) {
    std::array<char, 256> own{};
    return ::gethostname(own.data(), own.size() - 1) == 0 &&
           rules::lower_case(host) == rules::lower_case(own.data());
}

bool reaches(const NbdTarget& target, const TcpListener& listener) {
    const auto bound = parse_zoned_address(listener.address);
    if (!bound || target.port != std::to_string(listener.port)) return false;
    const IpAddress& own = bound->address;
    const auto is_any = [](const IpAddress& each) { return each == IpAddress{.v6 = each.v6}; };
    const auto to = parse_zoned_address(target.host);
    if (!to) {  // names are not resolved, since that may take long
        if (is_localhost(target.host)) return is_any(own) || own.loopback();
        return is_any(own) && is_host_name(target.host);
    }
    const IpAddress address = to->address.unmapped();
    if (address.v6 != own.v6) return false;
    if (is_any(own)) return is_any(address) || is_of_this_machine(address);
    return address == own || (is_any(address) && own.loopback());
}

bool reaches(const NbdTarget& target, const std::string& socket) {
    return !target.socket.empty() && rules::same_file(target.socket, socket);
}

std::string error_of(const std::string& uri, const ServerAddresses& own) {
    NbdTarget target;
    try {
        target = parse_nbd_uri(uri);
    } catch (const std::runtime_error&) {  // libnbd says what is wrong
        return {};
    }
    const auto reached = [&](const auto& each) { return reaches(target, each); };
    if (std::ranges::none_of(own.tcp, reached) && std::ranges::none_of(own.sockets, reached)) {
        return {};
    }
    return fmt::format(
        "{} is {} of this server, which would wait for itself; name an export of another server",
        uri,
        target.export_name.empty() ? "the default export"
                                   : "the export " + in_quotes(target.export_name));
}

}  // namespace

std::optional<rules::ExportError> origin_cycle(const ExportList& exports,
                                               const ServerAddresses& own) {
    for (std::size_t index = 0; index != exports.size(); ++index) {
        const std::string& uri = exports[index].origin.nbd;
        if (uri.empty()) continue;
        if (std::string why = error_of(uri, own); !why.empty()) {
            return rules::ExportError{index, std::move(why)};
        }
    }
    return std::nullopt;
}

}  // namespace gpunbd::config
