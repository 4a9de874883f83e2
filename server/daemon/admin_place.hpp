// Where the admin endpoint of this process is: as it was configured, or on a Unix socket of its own
// in the folder for such.
#pragma once

#include <memory>
#include <string>

#include "config/options.hpp"
#include "server/admin/endpoint.hpp"

namespace gpunbd::server {

// What is asked of who comes by TCP. Each throws std::runtime_error: a file is wrong.
admin::EndpointPolicy admin_policy(const config::AdminOptions& options);
std::shared_ptr<const TlsContext> admin_tls(const config::Options& options);  // null: none

// Has the configuration a place that only one process can have?
bool admin_place_is_shared(const config::Options& options);
// Opens what is asked for; without it admin-PID.sock, and where that cannot be had, says so. Throws
// std::runtime_error where it was asked for.
void open_admin_place(admin::Endpoint& endpoint, const config::Options& options);
// Whatever lies there of processes that have ended is removed.
void remove_stale_admin_sockets(const std::string& folder);

}  // namespace gpunbd::server
