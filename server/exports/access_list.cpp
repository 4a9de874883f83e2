#include "server/exports/access_list.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

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
