#include "config/nbd_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <stdexcept>

#include "config/quote.hpp"
#include "config/rules.hpp"

namespace gpunbd::config {

namespace {

constexpr std::string_view uri_forms =
    "write for example nbd://127.0.0.1:10809/NAME or nbd+unix:///NAME?socket=PATH";

[[noreturn]] void refuse_uri(const std::string& what) { throw std::runtime_error(what); }

std::string percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        const std::string_view digits = text.substr(i + 1, 2);
        std::uint8_t byte = 0;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
        if (error != std::errc{} || digits.size() != 2 || end != digits.data() + 2 || byte == 0) {
            refuse_uri(fmt::format("% must be followed by two hexadecimal digits other than 00: {}",
                                   in_quotes(text)));
        }
        out += static_cast<char>(byte);
        i += 2;
    }
    return out;
}

// Returns the text before the mark; `text` keeps the text after it.
std::string_view cut_before(std::string_view& text, std::string_view mark) {
    const std::size_t at = text.find(mark);
    const std::string_view before = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view{} : text.substr(at + mark.size());
    return before;
}

void read_port(std::string_view port, NbdTarget& out) {
    std::uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc{} || end != port.data() + port.size() || number == 0) {
        refuse_uri(fmt::format("{} is not a port from 1 to 65535", in_quotes(port)));
    }
    out.port = port;
}

// The zone of a link-local address follows "%25" (RFC 6874), or "%" as in other programs.
std::string address_in_brackets(std::string_view text) {
    const std::size_t mark = text.find('%');
    if (mark == text.npos || text.substr(mark).starts_with("%25")) return percent_decoded(text);
    return std::string(text);
}

void read_authority(std::string_view text, NbdTarget& out) {
    if (const std::size_t user = text.find('@'); user != std::string_view::npos) {
        out.user = percent_decoded(text.substr(0, user));
        text.remove_prefix(user + 1);
    }
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        if (end == std::string_view::npos) refuse_uri("the [ has no matching ]");
        out.host = address_in_brackets(text.substr(1, end - 1));
        text.remove_prefix(end + 1);
    } else {
        const std::size_t colon = std::min(text.find(':'), text.size());
        if (text.find(':', colon + 1) != std::string_view::npos) {
            refuse_uri("an IPv6 address needs brackets: nbd://[::1]/");
        }
        out.host = percent_decoded(text.substr(0, colon));
        text.remove_prefix(colon);
    }
    if (out.host.empty()) refuse_uri(fmt::format("the host is missing; {}", uri_forms));
    if (text.empty() || text == ":") return;
    if (text.front() != ':') {
        refuse_uri(fmt::format("{} follows the address; write :PORT there", in_quotes(text)));
    }
    read_port(text.substr(1), out);
}

void read_parameter(std::string_view name, const std::string& value, NbdTarget& out) {
    if (name == "socket") {
        out.socket = value;
    } else if (name == "tls-certificates") {
        out.certificates = value;
    } else if (name == "tls-psk-file") {
        out.psk_file = value;
    } else if (name == "tls-hostname") {
        out.tls_hostname = value;
    } else if (name == "tls-verify-peer") {
        if (value != "true" && value != "false") {
            refuse_uri(fmt::format("tls-verify-peer is true or false, not {}", in_quotes(value)));
        }
        out.verify = value == "true";
    } else {
        refuse_uri(
            fmt::format("unknown parameter {}; supported are socket, tls-certificates, "
                        "tls-psk-file, tls-hostname and tls-verify-peer",
                        in_quotes(name)));
    }
}

void check_tls_parameters(const NbdTarget& target) {
    const bool by_psk = !target.psk_file.empty();
    const bool by_name = !target.certificates.empty() || !target.tls_hostname.empty();
    if ((by_psk || by_name || !target.verify) && !target.tls) {
        refuse_uri("a TLS parameter requires TLS; write nbds instead of nbd");
    }
    if (by_psk && (by_name || !target.verify)) {
        refuse_uri(
            "tls-psk-file excludes the other TLS parameters, which are for certificates; leave one "
            "of the two out");
    }
    if (by_psk && target.user.empty()) {
        refuse_uri("the user of the shared key is missing; write nbds://USER@HOST/");
    }
    if (target.tls && !by_psk && !target.user.empty()) {
        refuse_uri("a user requires a shared key; add tls-psk-file=FILE, or leave the user out");
    }
}

void check_parameters(bool unix, const NbdTarget& target) {
    if (unix == target.socket.empty()) {
        refuse_uri(fmt::format("{}; {}",
                               unix ? "nbd+unix requires socket=PATH" : "socket= requires nbd+unix",
                               uri_forms));
    }
    if (target.socket.size() > rules::max_unix_path) {
        refuse_uri(fmt::format("the path of the socket exceeds {} bytes; use a shorter path",
                               rules::max_unix_path));
    }
    check_tls_parameters(target);
    if (target.export_name.size() > rules::max_text) {
        refuse_uri(fmt::format("the name of the export exceeds {} bytes", rules::max_text));
    }
}

}  // namespace

NbdTarget parse_nbd_uri(std::string_view uri) {
    NbdTarget out;
    std::string_view rest = uri.substr(0, uri.find('#'));
    const std::string scheme = rules::lower_case(cut_before(rest, "://"));
    const bool unix = scheme == "nbd+unix" || scheme == "nbds+unix";
    out.tls = scheme.starts_with("nbds");
    if (!unix && scheme != "nbd" && scheme != "nbds") {
        refuse_uri(fmt::format("{} is not one of nbd, nbds, nbd+unix and nbds+unix; {}",
                               in_quotes(scheme), uri_forms));
    }
    std::string_view place = cut_before(rest, "?");
    const std::string_view authority = cut_before(place, "/");
    if (!unix) {
        read_authority(authority, out);
    } else if (authority.ends_with('@')) {
        out.user = percent_decoded(authority.substr(0, authority.size() - 1));
    } else if (!authority.empty()) {
        refuse_uri(fmt::format("nbd+unix takes no host, but {} was given; {}", in_quotes(authority),
                               uri_forms));
    }
    out.export_name = percent_decoded(place);
    while (!rest.empty()) {
        std::string_view value = cut_before(rest, "&");
        const std::string_view name = cut_before(value, "=");
        read_parameter(name, percent_decoded(value), out);
    }
    check_parameters(unix, out);
    return out;
}

bool is_localhost(std::string_view host) {
    if (host.ends_with('.')) host.remove_suffix(1);
    const std::string name = rules::lower_case(host);
    return name == "localhost" || name.ends_with(".localhost");
}

}  // namespace gpunbd::config
