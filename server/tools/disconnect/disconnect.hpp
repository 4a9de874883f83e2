// `gpunbd disconnect`: closes connections of an export.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/admin/model/status.hpp"
#include "server/tools/status/server_selection.hpp"

namespace gpunbd::status {

struct DisconnectOptions {
    ServerSelection server = {};
    std::string export_name = {};
    std::optional<std::string> client = {};  // unset: all
    bool json = false;
};

// Whether `client` names the connection: its id, its peer with or without the port, or its identity
// in TLS.
bool is_client(const server::ConnectionStatus& connection, const std::string& client);

// `folders`: the usual folders of server sockets. Returns the exit status. Throws what fmt::print()
// throws.
int run_disconnect(const DisconnectOptions& command, const std::vector<std::string>& folders);

}  // namespace gpunbd::status
