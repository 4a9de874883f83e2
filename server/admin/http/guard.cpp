#include "server/admin/http/guard.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>

#include "config/quote.hpp"
#include "server/net/credentials/private_file.hpp"

namespace gpunbd::server::admin {

namespace {

using Sha256 = std::array<unsigned char, 32>;

// Comparing digests takes the same time for texts of any length.
Sha256 digest_of(std::string_view text) {
    Sha256 digest{};
    if (::EVP_Digest(text.data(), text.size(), digest.data(), nullptr, ::EVP_sha256(), nullptr) !=
        1) {
        throw std::bad_alloc();
    }
    return digest;
}

bool is_allowed(char c) { return c > ' ' && c < 0x7f; }

std::string lower_case(std::string_view text) {
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

// In lower case, with the default port if there is none.
std::string normalized(std::string_view authority, std::string_view scheme) {
    return lower_case(authority) + (has_port(authority) ? "" : scheme == "https" ? ":443" : ":80");
}

bool is_name_of(const EndpointPolicy& policy, const std::string& local_address,
                const std::string& host) {
    if (host == lower_case(policy.authority) || host == lower_case(local_address)) return true;
    const std::string port(port_of(policy.authority));
    for (const char* always : {"localhost", "127.0.0.1", "[::1]"}) {
        if (host == always + port) return true;
    }
    return std::any_of(policy.names.begin(), policy.names.end(),
                       [&](const std::string& name) { return host == lower_case(name) + port; });
}

bool same_origin(const EndpointPolicy& policy, std::string_view origin, std::string_view host) {
    const std::size_t end = origin.find("://");
    if (end == std::string_view::npos) return false;
    const std::string scheme = lower_case(origin.substr(0, end));
    // A proxy that terminates TLS may use the Unix socket.
    const bool known =
        scheme == "http" ? !policy.tls : scheme == "https" && (policy.tls || !policy.tcp);
    return known && normalized(origin.substr(end + 3), scheme) == normalized(host, scheme);
}

constexpr std::string_view bearer_prefix = "bearer ";
constexpr std::string_view kept_path = "/api/v1/kept";

}  // namespace

Token Token::load(const std::string& path) {
    const SecretBytes bytes = read_private_file(
        path, fmt::format("create one: (umask 077; openssl rand -hex 32 > {})", path));
    std::string_view text(bytes.data(), bytes.size());
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    if (text.size() < min_length || !std::all_of(text.begin(), text.end(), is_allowed)) {
        throw std::runtime_error(
            fmt::format("{}: the file must have one line of at least {} characters without spaces; "
                        "create one: openssl rand -hex 32",
                        path, min_length));
    }
    return Token(digest_of(text));
}

bool Token::matches(std::string_view sent) const {
    const Sha256 other = digest_of(sent);
    return ::CRYPTO_memcmp(other.data(), digest_.data(), digest_.size()) == 0;
}

std::optional<std::string> EndpointPolicy::read_only_reason() const {
    if (!tcp || tls || token) return std::nullopt;
    return "this address is not protected, so it allows no changes; use the Unix socket "
           "(admin.socket), or set admin.tcp.token or admin.tcp.tls";
}

std::optional<Response> check_site(const Request& request, const EndpointPolicy& policy,
                                   const std::string& local_address, bool is_page) {
    if (!request.host) return error_response(400, "the request must have exactly one Host header");
    const std::string host = normalized(*request.host, policy.tls ? "https" : "http");
    if (policy.tcp && !is_name_of(policy, local_address, host)) {
        return error_response(
            421,
            fmt::format(
                "the name {} is not a name of this server; use {}, or add the name to admin.hosts",
                config::in_quotes(*request.host), policy.authority));
    }
    if (request.origin && !same_origin(policy, *request.origin, *request.host)) {
        return error_response(
            403, fmt::format("pages of {} may not send requests; open the page of this server",
                             config::in_quotes(*request.origin)));
    }
    // A browser sends no Origin with a GET that a link, an image or a script of another site
    // causes.
    const std::string site = lower_case(request.fetch_site.value_or("none"));
    const bool reads = request.method == Method::get || request.method == Method::head;
    if (site != "none" && site != "same-origin" && !(is_page && reads)) {
        return error_response(
            403, "pages of other sites may not send requests; open the page of this server");
    }
    return std::nullopt;
}

std::optional<Response> check_access(const Request& request, const EndpointPolicy& policy) {
    if (policy.kept_only && !request.target.starts_with(kept_path)) {
        return error_response(404, fmt::format("this socket serves only {}; use the admin socket "
                                               "(admin.socket) for other paths",
                                               kept_path));
    }
    if (policy.token) {
        std::string_view authorization;
        if (request.authorization) authorization = *request.authorization;
        const bool bearer =
            lower_case(authorization.substr(0, bearer_prefix.size())) == bearer_prefix;
        if (!bearer || !policy.token->matches(authorization.substr(bearer_prefix.size()))) {
            Response response = error_response(
                401,
                "the token is missing or wrong; send Authorization: Bearer and the token in the "
                "file of admin.tcp.token");
            response.headers.push_back({"WWW-Authenticate", "Bearer realm=\"gpunbd\""});
            return response;
        }
    }
    const auto read_only_reason = policy.read_only_reason();
    if (request.method == Method::post && read_only_reason)
        return error_response(403, *read_only_reason);
    return std::nullopt;
}

}  // namespace gpunbd::server::admin
