#include "server/admin/http/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

namespace {

std::string small(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

bool has_port(std::string_view authority) {
    const std::size_t colon = authority.rfind(':');
    return colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
}

std::string_view port_of(std::string_view authority) {
    return has_port(authority) ? authority.substr(authority.rfind(':')) : std::string_view();
}

// In small letters, with the port that its absence means.
std::string whole(std::string_view authority, std::string_view scheme) {
    return small(authority) + (has_port(authority) ? "" : scheme == "https" ? ":443" : ":80");
}

bool is_called(const Door& door, const std::string& reached, const std::string& host) {
    if (host == small(door.authority) || host == small(reached)) return true;
    const std::string port(port_of(door.authority));
    for (const char* always : {"localhost", "127.0.0.1", "[::1]"}) {
        if (host == always + port) return true;
    }
    return std::any_of(door.names.begin(), door.names.end(),
                       [&](const std::string& name) { return host == small(name) + port; });
}

bool same_origin(const Door& door, std::string_view origin, std::string_view host) {
    const std::size_t end = origin.find("://");
    if (end == std::string_view::npos) return false;
    const std::string scheme = small(origin.substr(0, end));
    // Before a Unix socket there may be a proxy that does TLS.
    const bool known = scheme == "http" ? !door.tls : scheme == "https" && (door.tls || !door.tcp);
    return known && whole(origin.substr(end + 3), scheme) == whole(host, scheme);
}

constexpr std::string_view scheme_of_token = "bearer ";

}  // namespace

std::optional<Answer> refuse_site(const Request& request, const Door& door,
                                  const std::string& reached) {
    if (!request.host) return refusal(400, "a request has one Host");
    const std::string host = whole(*request.host, door.tls ? "https" : "http");
    if (door.tcp && !is_called(door, reached, host)) {
        return refusal(421,
                       fmt::format("this is not {}; ask for {}, or add the name to admin.hosts",
                                   config::in_quotes(*request.host), door.authority));
    }
    if (request.origin && !same_origin(door, *request.origin, *request.host)) {
        return refusal(403,
                       fmt::format("pages of {} may not ask here; open the page of this server",
                                   config::in_quotes(*request.origin)));
    }
    const std::string site = small(request.fetch_site.value_or("none"));
    if (request.method != Method::get && request.method != Method::head && site != "none" &&
        site != "same-origin") {
        return refusal(403,
                       "pages of other sites change nothing here; open the page of this server");
    }
    return std::nullopt;
}

std::optional<Answer> refuse_stranger(const Request& request, const Door& door) {
    if (door.token) {
        std::string_view shown;
        if (request.authorization) shown = *request.authorization;
        const bool bearer = small(shown.substr(0, scheme_of_token.size())) == scheme_of_token;
        if (!bearer || !door.token->is(shown.substr(scheme_of_token.size()))) {
            Answer answer = refusal(
                401,
                "the token is missing or wrong; send Authorization: Bearer and what the file "
                "of admin.tcp.token holds");
            answer.fields.push_back({"WWW-Authenticate", "Bearer realm=\"gpunbd\""});
            return answer;
        }
    }
    if (request.method == Method::post && !door.guarded()) {
        return refusal(403,
                       "nothing guards this address, so it only tells; ask by the Unix socket "
                       "(admin.socket), or set admin.tcp.token or admin.tcp.tls");
    }
    return std::nullopt;
}

}  // namespace gpunbd::server::admin
