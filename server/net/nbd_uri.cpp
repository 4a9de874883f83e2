#include "server/net/nbd_uri.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "server/net/vsock_address.hpp"

// After <sys/socket.h>, whose types it needs.
#include <linux/vm_sockets.h>

namespace gpunbd::server {

namespace {

bool is_plain(char c, const char* also) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           (c != '\0' && std::strchr(also, c) != nullptr);
}

std::string tcp_uri(const std::string& host, std::uint16_t port, const std::string& name,
                    bool tls) {
    return fmt::format("{}://{}:{}{}{}", tls ? "nbds" : "nbd", host, port, name.empty() ? "" : "/",
                       percent_encoded(name));
}

// "%25eth0" of an interface; 0: an empty text.
std::string zone_of(std::uint32_t scope) {
    std::array<char, IF_NAMESIZE> name{};
    if (scope == 0) return {};
    if (::if_indextoname(scope, name.data()) == nullptr) return fmt::format("%25{}", scope);
    return "%25" + percent_encoded(name.data());
}

}  // namespace

std::string percent_encoded(const std::string& text) {
    std::string out;
    for (const char c : text) {
        out += is_plain(c, "-._~/") ? std::string(1, c)
                                    : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return out;
}

std::string unix_uri(const std::string& socket_path, const std::string& export_name, bool tls) {
    return fmt::format("{}+unix:///{}?socket={}", tls ? "nbds" : "nbd",
                       percent_encoded(export_name), percent_encoded(socket_path));
}

std::optional<std::string> listener_uri(int fd, const std::string& export_name, bool tls) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
        const bool any = in.sin_addr.s_addr == htonl(INADDR_ANY);
        return tcp_uri(any ? "127.0.0.1" : text.data(), ntohs(in.sin_port), export_name, tls);
    }
    if (address.ss_family == AF_INET6) {
        const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &in6.sin6_addr, text.data(), text.size());
        const bool any = IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr);
        const std::string zone = zone_of(in6.sin6_scope_id);  // RFC 6874 has "%25" before it
        return tcp_uri(any ? "[::1]" : fmt::format("[{}{}]", text.data(), zone),
                       ntohs(in6.sin6_port), export_name, tls);
    }
    if (address.ss_family == AF_VSOCK) {
        const auto& vm = reinterpret_cast<const sockaddr_vm&>(address);
        const std::uint32_t cid =
            vm.svm_cid != VMADDR_CID_ANY ? vm.svm_cid : local_cid().value_or(VMADDR_CID_LOCAL);
        return fmt::format("{}+vsock://{}:{}/{}", tls ? "nbds" : "nbd", cid, vm.svm_port,
                           percent_encoded(export_name));
    }
    const auto& un = reinterpret_cast<const sockaddr_un&>(address);
    const std::size_t room =
        length - std::min<std::size_t>(length, offsetof(sockaddr_un, sun_path));
    // An abstract or nameless socket has no path.
    if (address.ss_family != AF_UNIX || room == 0 || un.sun_path[0] == '\0') return std::nullopt;
    const std::string path(un.sun_path, ::strnlen(un.sun_path, room));
    // Clients may run in another working directory.
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(path, error);
    return unix_uri(error ? path : absolute.string(), export_name, tls);
}

std::string shell_word(const std::string& text) {
    const bool plain =
        std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c, "-._~/:%+=,@"); });
    if (plain && !text.empty()) return text;
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

}  // namespace gpunbd::server
