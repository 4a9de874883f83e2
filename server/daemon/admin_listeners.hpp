// Opens the listeners of the admin endpoint: the configured ones, or a Unix socket in the runtime
// folder.
#pragma once

#include <memory>
#include <string>

#include "config/options.hpp"
#include "server/admin/endpoint.hpp"

namespace gpunbd::server {

// Requirements for TCP clients: token, TLS. Both throw std::runtime_error if a file is invalid.
admin::EndpointPolicy admin_policy(const config::AdminOptions& options);
std::shared_ptr<const TlsContext> admin_tls(const config::Options& options);  // null: none

// Returns true if the configuration has an admin address that only one process can use.
bool has_exclusive_admin_address(const config::Options& options);
// Opens the configured addresses; without any, admin-PID.sock, whose failure is only logged. Throws
// std::runtime_error if a configured address cannot be opened.
void open_admin_listeners(admin::Endpoint& endpoint, const config::Options& options);
// Removes the sockets of processes that have ended.
void remove_stale_admin_sockets(const std::string& folder);

}  // namespace gpunbd::server
