#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/admin/model/status.hpp"
#include "server/tools/status/admin_server.hpp"

namespace gpunbd::status {

// `gpunbd disconnect`: closes connections of an export.
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

namespace gpunbd::tools {

// `gpunbd disconnect`
class DisconnectCommand final : public config::Command {
 public:
    DisconnectCommand();
    void store_arguments(const std::vector<std::string>& arguments) override;
    int run(const config::Commands& all) override;

    status::DisconnectOptions settings;
};

}  // namespace gpunbd::tools
