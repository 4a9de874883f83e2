#include "server/exports/access_query.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/zoned_address.hpp"
#include "server/exports/access_list.hpp"

namespace gpunbd::server {

namespace {

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

}  // namespace

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

}  // namespace gpunbd::server
