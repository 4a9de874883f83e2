#include "server/exports/export_template.hpp"

#include "config/client_clones.hpp"
#include "config/rules.hpp"

namespace gpunbd::server {

namespace {

using Client = ExportTemplate::Client;

Client by_address(const PeerIdentity& applicant) {
    if (applicant.address) return {applicant.address->text(), {}};
    return {{}, "this export has a clone for each IP address: connect by TCP"};
}

Client by_tls_name(const Peer& peer) {
    if (!peer.tls || peer.tls->names.empty()) {
        return {{}, "this export has a clone for each certificate: connect by TLS with one"};
    }
    std::string name = config::rules::lower_case(peer.tls->names.front());
    if (config::is_client_id(name)) return {std::move(name), {}};
    return {{}, "the name in the certificate is not 1 to 64 letters, digits, or any of . _ @ : -"};
}

}  // namespace

std::optional<Client> ExportTemplate::client_of(const PeerIdentity& applicant,
                                                std::string_view name) const {
    if (needs_longer_name()) {
        auto machine = config::machine_of(options, name);
        if (!machine) return std::nullopt;
        return Client{*std::move(machine), {}};
    }
    if (name != options.name) return std::nullopt;
    return options.clone_per_client.name == config::ClientId::address ? by_address(applicant)
                                                                      : by_tls_name(applicant.peer);
}

ExportTemplates templates_in(const config::ExportList& exports) {
    ExportTemplates out;
    for (const config::ExportOptions& each : exports) {
        if (each.is_template()) out.push_back(std::make_shared<const ExportTemplate>(each));
    }
    return out;
}

}  // namespace gpunbd::server
