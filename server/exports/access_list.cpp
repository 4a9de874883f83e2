#include "server/exports/access_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>

#include "config/network.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "storage/assertions/assert.hpp"

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

template <typename T>
T value_of(config::rules::Checked<T> checked, std::string_view flag) {
    if (const auto* wrong = std::get_if<config::rules::Wrong>(&checked)) {
        throw std::runtime_error(fmt::format("{}: {}", flag, wrong->what));
    }
    return std::get<T>(std::move(checked));
}

[[noreturn]] void refuse(const std::string& client) {
    throw std::runtime_error(fmt::format(
        "--who: {} is not a client; write for example 10.1.2.3, ::1, unix:uid=1000,gid=100, or "
        "vsock:3",
        config::in_quotes(client)));
}

// Returns the text before the separator and removes both from `text`.
std::string_view split(std::string_view& text, char separator) {
    const auto at = text.find(separator);
    const std::string_view first = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
    return first;
}

// "uid=1000,gid=100,gid=101"
Peer unix_client(const std::string& client, std::string_view parts) {
    Peer peer;
    peer.kind = Peer::Kind::unix_socket;
    bool has_uid = false;
    bool has_gid = false;
    while (!parts.empty()) {
        std::string_view value = split(parts, ',');
        const std::string_view key = split(value, '=');
        if (key == "uid" && !has_uid) {
            peer.uid = value_of(config::rules::user(value), "--who").id;
            has_uid = true;
        } else if (key == "gid") {
            const gid_t gid = value_of(config::rules::group(value), "--who").id;
            if (has_gid) peer.groups.push_back(gid);
            if (!has_gid) peer.gid = gid;
            has_gid = true;
        } else {
            refuse(client);
        }
    }
    if (!has_uid) refuse(client);
    // Every process has a group; without one given, use one that matches no rule.
    if (!has_gid) peer.gid = static_cast<gid_t>(-1);
    return peer;
}

bool is_in_group(const Peer& peer, gid_t group) {
    return peer.gid == group ||
           std::find(peer.groups.begin(), peer.groups.end(), group) != peer.groups.end();
}

bool has_name(const TlsIdentity& tls, const std::string& lower_case_name) {
    return std::any_of(tls.names.begin(), tls.names.end(), [&](const std::string& name) {
        return config::rules::lower_case(name) == lower_case_name;
    });
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

Peer peer_of(const config::AccessQuery& query) {
    const std::string& client = query.client;
    const std::string_view text = client;
    constexpr std::string_view local = "unix:";
    constexpr std::string_view vsock = "vsock:";
    Peer peer;
    if (text.starts_with(local)) {
        peer = unix_client(client, text.substr(local.size()));
    } else if (text.starts_with(vsock)) {
        peer.kind = Peer::Kind::vsock;
        peer.cid = static_cast<std::uint32_t>(value_of(
            config::rules::integer(text.substr(vsock.size()), {0, 4'294'967'295}), "--who"));
    } else {
        const auto parsed = config::parse_zoned_address(client);
        if (!parsed) refuse(client);
        peer.kind = Peer::Kind::tcp;
        peer.address = parsed->address.text();  // rules do not depend on the interface
    }
    if (query.tls_name || query.psk_user) peer.tls.emplace();
    if (query.tls_name) {
        peer.tls->names.push_back(value_of(config::rules::tls_name(*query.tls_name), "--tls-name"));
    }
    if (query.psk_user) {
        peer.tls->psk_user = value_of(config::rules::psk_user(*query.psk_user), "--psk-user");
    }
    return peer;
}

std::string ExportAccess::text() const {
    return fmt::format("export {}: {}: {}{}{}{}", config::in_quotes(name), access, why,
                       line ? fmt::format(" (line {})", *line) : "",
                       opens && read_only ? "; the export is read_only" : "",
                       opens && in_tls ? "; in TLS only" : "");
}

std::vector<ExportAccess> access_report(const config::Options& options, const Peer& peer) {
    std::vector<ExportAccess> out;
    const PeerIdentity identity(peer);
    for (const config::ExportOptions& each : options.exports) {
        const AccessList list(each.access);
        const Verdict verdict = list.decide(identity);
        const bool only_reads = verdict.access == Access::read_only || each.read_only;
        ExportAccess& its = out.emplace_back();
        its.name = each.name;
        its.opens = verdict.access != Access::denied;
        its.access = !its.opens ? "denied" : only_reads ? "read-only" : "read-write";
        its.why = list.why(verdict);
        if (verdict.rule) its.line = each.access[*verdict.rule].line.number;
        its.read_only = each.read_only;
        its.in_tls = options.tls.mode == config::TlsMode::required || each.tls_required;
    }
    return out;
}

PeerIdentity::PeerIdentity(const Peer& who) : peer(who) {
    if (who.kind != Peer::Kind::tcp) return;
    address = config::parse_ip(who.address);
    if (address) address = address->unmapped();
}

AccessRule::AccessRule(const config::AccessRule& options) : options_(options) {
    if (options_.tls_name) options_.tls_name = config::rules::lower_case(*options_.tls_name);
}

bool AccessRule::matches(const PeerIdentity& applicant) const {
    const Peer& peer = applicant.peer;
    const bool local = peer.kind == Peer::Kind::unix_socket;
    if (options_.network && !(applicant.address && options_.network->holds(*applicant.address))) {
        return false;
    }
    if (options_.uid && !(local && peer.uid == options_.uid->id)) return false;
    if (options_.gid && !(local && is_in_group(peer, options_.gid->id))) return false;
    if (options_.cid && !(peer.kind == Peer::Kind::vsock && peer.cid == *options_.cid)) {
        return false;
    }
    if (options_.tls_name && !(peer.tls && has_name(*peer.tls, *options_.tls_name))) return false;
    if (options_.psk_user && !(peer.tls && peer.tls->psk_user == *options_.psk_user)) return false;
    // An identity of which the client has none matches nothing.
    return options_.network || options_.uid || options_.gid || options_.cid || options_.tls_name ||
           options_.psk_user;
}

std::string AccessRule::text() const {
    std::string out;
    const auto add = [&out](const char* key, const std::string& value) {
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, value);
    };
    if (options_.network) add("network", options_.network->text());
    if (options_.uid) add("uid", config::in_quotes(options_.uid->name));
    if (options_.gid) add("gid", config::in_quotes(options_.gid->name));
    if (options_.cid) add("cid", std::to_string(*options_.cid));
    if (options_.tls_name) add("tls_name", config::in_quotes(*options_.tls_name));
    if (options_.psk_user) add("psk_user", config::in_quotes(*options_.psk_user));
    return out;
}

AccessList::AccessList(const std::vector<config::AccessRule>& rules)
    : rules_(rules.begin(), rules.end()) {}

Verdict AccessList::decide(const PeerIdentity& applicant) const {
    if (rules_.empty()) return {.access = Access::read_write};
    for (std::size_t i = 0; i != rules_.size(); ++i) {
        if (!rules_[i].matches(applicant)) continue;
        const bool writes = rules_[i].mode() == config::AccessMode::read_write;
        return {.access = writes ? Access::read_write : Access::read_only, .rule = i};
    }
    return {};
}

std::string AccessList::why(const Verdict& verdict) const {
    if (rules_.empty()) return "it has no access list";
    GPUNBD_ASSERT(!verdict.rule || *verdict.rule < rules_.size(),
                  "a list explains its own verdicts");
    if (verdict.rule) {
        return fmt::format("rule {} matches: {}", *verdict.rule + 1, rules_[*verdict.rule].text());
    }
    return rules_.size() == 1 ? "the one rule of its access list does not match"
                              : fmt::format("none of its {} rules matches", rules_.size());
}

}  // namespace gpunbd::server
