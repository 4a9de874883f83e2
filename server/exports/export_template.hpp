// An export with clone_per_client: it has no contents, and each client that opens it gets a clone
// of another export.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "server/exports/access_list.hpp"

namespace gpunbd::server {

struct ExportTemplate {
    explicit ExportTemplate(const config::ExportOptions& its_options)
        : options(its_options), access(its_options.access) {}

    // The client for which a clone is made.
    struct Client {
        std::string id;       // config::is_client_id()
        std::string why_not;  // no clone can be made for it, as one line for the client
    };
    // The client that asks for an export of this name; nothing: it is neither the name of the
    // template nor one of its clones that the client names itself.
    std::optional<Client> client_of(const PeerIdentity& applicant, std::string_view name) const;
    // Clients have to add their id to the name of the template.
    bool needs_longer_name() const {
        return options.clone_per_client.name == config::ClientId::machine;
    }

    config::ExportOptions options;
    AccessList access;
};

using ExportTemplates = std::vector<std::shared_ptr<const ExportTemplate>>;
ExportTemplates templates_in(const config::ExportList& exports);

}  // namespace gpunbd::server
