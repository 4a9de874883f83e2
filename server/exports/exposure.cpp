#include "server/exports/exposure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

// True if TCP clients from anywhere match. Rules for users, groups or virtual machines match none
// of them.
bool lets_all_in(const config::AccessRule& rule) {
    return rule.network && rule.network->holds_all() && !rule.tls_name && !rule.psk_user;
}

bool lets_all_in(const config::ExportOptions& exported) {
    if (exported.tls_required) return false;
    return exported.access.empty() ||
           std::any_of(exported.access.begin(), exported.access.end(),
                       [](const config::AccessRule& rule) { return lets_all_in(rule); });
}

}  // namespace

std::optional<std::string> open_to_all(const config::Options& options) {
    if (options.tls.mode == config::TlsMode::required) return std::nullopt;
    std::size_t others = 0;
    const config::ExportOptions* first = nullptr;
    for (const config::ExportOptions& each : options.exports) {
        if (!lets_all_in(each)) continue;
        if (first != nullptr) ++others;
        if (first == nullptr) first = &each;
    }
    if (first == nullptr) return std::nullopt;
    return fmt::format("export {}{}", config::in_quotes(first->name),
                       others == 0 ? "" : fmt::format(" and {} more", others));
}

std::optional<std::string> unproved_in_tls(const config::Options& options) {
    const config::TlsOptions& tls = options.tls;
    if (tls.mode == config::TlsMode::off || tls.certificates.empty() || tls.verify_clients) {
        return std::nullopt;
    }
    const auto open = std::find_if(options.exports.begin(), options.exports.end(),
                                   [](const auto& each) { return each.access.empty(); });
    if (open == options.exports.end()) return std::nullopt;
    return fmt::format(
        "tls.verify_clients is false: every client that can reach a listener may open export {}, "
        "with or without TLS; set tls.verify_clients, or give the export an access list",
        config::in_quotes(open->name));
}

std::optional<std::string> unused_credentials(const config::Options& options) {
    const config::TlsOptions& tls = options.tls;
    const bool certificates = !tls.certificates.empty() && !options.admin.tcp.tls;
    if (tls.mode != config::TlsMode::off || (!certificates && tls.psk.empty())) return std::nullopt;
    const std::string_view unused = !certificates     ? "psk has"
                                    : tls.psk.empty() ? "certificates have"
                                                      : "certificates and psk have";
    return fmt::format(
        "{} no effect with mode: off; use mode: required or optional, or leave {} out", unused,
        certificates ? "them" : "it");
}

std::string exposure_text(const std::string& where, const std::string& open) {
    return fmt::format(
        "{}: other machines can reach this address, which exposes {} without protection: require "
        "TLS (tls.mode: required), give every export an access list (exports[].access), listen on "
        "127.0.0.1 or a Unix socket instead, or accept it with insecure: true (--insecure)",
        where, open);
}

std::string insecure_text(const std::string& where, const std::string& open) {
    return fmt::format(
        "insecure: {}: every client that can reach this address may read and change {}, and the "
        "traffic is not encrypted",
        where, open);
}

}  // namespace gpunbd::server
