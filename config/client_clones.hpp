// The exports that a server makes from an export with clone_per_client, one for each client.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/exports_by_name.hpp"
#include "config/options.hpp"

namespace gpunbd::config {

// The id of a client as a part of a name: 1 to 64 letters, digits, or any of . _ @ : - between
// them.
bool is_client_id(std::string_view text);

// "TEMPLATE/CLIENT"
std::string name_of_clone(const ExportOptions& its_template, std::string_view client);
// The reverse, if a template with ClientId::machine can have a clone of that name.
std::optional<std::string> machine_of(const ExportOptions& its_template, std::string_view name);

// The options of the clone for a client. Its access rules are those of the template, restricted to
// the client if the client can prove its id. `client` is a valid id: for ClientId::address an IP
// address, for ClientId::tls_name a name in lower case.
ExportOptions options_of_clone(const ExportOptions& its_template, std::string_view client);

// The options of an existing clone after its template was changed. It keeps its source, size and
// `keep`, and everything if the template identifies clients in another way now.
ExportOptions updated_clone(const ExportOptions& clone, const ExportOptions& its_template);

// The same with the template of the clone among `exports`. The options of an export that is no
// clone for a client, or has no template there any more, stay as they are.
ExportOptions updated_clone(const ExportOptions& exported, const ExportsByName& exports);

}  // namespace gpunbd::config
