#include "server/attach/target.hpp"

#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "protocol/constants.hpp"

namespace gpunbd::attach {
namespace {

constexpr std::string_view default_port = "10809";

Failure wrong(std::string_view uri, std::string_view why) {
    return {config::in_quotes(uri) + ": " + std::string(why)};
}

std::optional<int> hex_digit(char c) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto at = digits.find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    return at == digits.npos ? std::nullopt : std::optional(static_cast<int>(at));
}

// Nothing where a percent sign has no two digits behind it, or is a zero byte.
std::optional<std::string> decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const auto high = hex_digit(text[i + 1]);
        const auto low = hex_digit(text[i + 2]);
        if (!high || !low || (*high == 0 && *low == 0)) return std::nullopt;
        out += static_cast<char>(*high * 16 + *low);
        i += 2;
    }
    return out;
}

std::optional<std::string_view> parameter(std::string_view query, std::string_view name) {
    while (!query.empty()) {
        const std::size_t end = std::min(query.find('&'), query.size());
        const std::string_view each = query.substr(0, end);
        if (each.starts_with(name) && each.substr(name.size()).starts_with('=')) {
            return each.substr(name.size() + 1);
        }
        query.remove_prefix(std::min(end + 1, query.size()));
    }
    return std::nullopt;
}

// The pieces of scheme://authority/path?query, as they are written.
struct Uri {
    std::string scheme;
    std::string_view authority;
    std::string_view path;
    std::string_view query;
};

std::optional<Uri> split(std::string_view text) {
    constexpr std::string_view mark = "://";
    const std::size_t at = text.find(mark);
    if (at == text.npos) return std::nullopt;
    Uri out{.scheme = config::rules::lower_case(text.substr(0, at)),
            .authority = {},
            .path = {},
            .query = {}};
    text.remove_prefix(at + mark.size());
    text = text.substr(0, text.find('#'));
    const std::size_t query = std::min(text.find('?'), text.size());
    out.query = text.substr(std::min(query + 1, text.size()));
    text = text.substr(0, query);
    const std::size_t path = std::min(text.find('/'), text.size());
    out.authority = text.substr(0, path);
    out.path = text.substr(std::min(path + 1, text.size()));
    return out;
}

// What is wrong with it; empty: nothing is.
std::string take_unix(const Uri& uri, Target& out) {
    constexpr std::string_view form = "write nbd+unix:///EXPORT?socket=PATH";
    if (!uri.authority.empty()) {
        return "a Unix socket has no host; " + std::string(form) + ", with three slashes";
    }
    const auto socket = parameter(uri.query, "socket");
    if (!socket || socket->empty()) return "where the socket is, is missing; " + std::string(form);
    const auto path = decoded(*socket);
    if (!path) return "a % needs two hexadecimal digits behind it, and not 00";
    if (path->size() >= sizeof(sockaddr_un::sun_path)) {
        return "the path of the socket is too long; 107 bytes are the most";
    }
    out.host = *path;
    return {};
}

std::string take_tcp(const Uri& uri, Target& out) {
    std::string_view authority = uri.authority;
    const std::size_t user = authority.find('@');
    if (user != authority.npos) authority.remove_prefix(user + 1);
    std::string_view host = authority;
    std::string_view port;
    const bool in_brackets = authority.starts_with('[');
    if (in_brackets) {
        const std::size_t end = authority.find(']');
        if (end == authority.npos) return "the ] behind the IPv6 address is missing";
        host = authority.substr(1, end - 1);
        port = authority.substr(end + 1);
    } else {
        host = authority.substr(0, authority.find(':'));
        port = authority.substr(host.size());
    }
    if (!port.empty() && port[0] != ':') return "write the port behind a colon: [ADDRESS]:PORT";
    if (port.find(':', 1) != port.npos) return "write an IPv6 address in brackets: nbd://[::1]/";
    if (host.empty()) return "the host is missing; write nbd://HOST/EXPORT";
    if (!port.empty()) port.remove_prefix(1);
    if (port.empty()) port = default_port;
    const auto number = config::rules::integer(port, {1, 65535});
    if (const auto* bad = std::get_if<config::rules::Wrong>(&number)) return "port: " + bad->what;
    const auto plain = decoded(host);
    if (!plain) return "a % needs two hexadecimal digits behind it, and not 00";
    out.host = *plain;
    out.port = port;
    return {};
}

// Schemes that the specification knows and the kernel has nothing for; null: there is something.
const char* refusal_of(std::string_view scheme) {
    if (scheme == "nbds" || scheme == "nbds+unix") {
        return "the kernel's client speaks no TLS; put a relay that does in between: nbdkit -U "
               "/run/relay.sock nbd uri=nbds://..., and attach "
               "nbd+unix:///?socket=/run/relay.sock";
    }
    if (scheme == "nbd+vsock" || scheme == "nbds+vsock") {
        return "the kernel's client takes connections by TCP and Unix sockets only; use nbd:// or "
               "nbd+unix://";
    }
    return nullptr;
}

}  // namespace

Or<Target> parse_target(std::string_view text) {
    const auto uri = split(text);
    if (uri) {
        if (const char* refused = refusal_of(uri->scheme)) return wrong(text, refused);
    }
    if (!uri || (uri->scheme != "nbd" && uri->scheme != "nbd+unix")) {
        return wrong(text,
                     "this is no NBD URI; write nbd://HOST/EXPORT or "
                     "nbd+unix:///EXPORT?socket=PATH");
    }
    Target out;
    std::string bad = uri->scheme == "nbd" ? take_tcp(*uri, out) : take_unix(*uri, out);
    if (!bad.empty()) return wrong(text, bad);
    const auto name = decoded(uri->path);
    if (!name) return wrong(text, "a % needs two hexadecimal digits behind it, and not 00");
    if (name->size() > protocol::max_string) {
        return wrong(text, "the name of the export is longer than 4096 bytes");
    }
    out.name = *name;
    return out;
}

}  // namespace gpunbd::attach
