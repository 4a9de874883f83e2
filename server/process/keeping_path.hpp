// Where the socket of `gpunbd kept` is unless that is told: in a folder that only its user, or
// root, can write to.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpunbd::server {

// For sockets of a server of this user: a folder that is made if it is not there. Nothing: there is
// no place for them. Throws std::runtime_error where it cannot be trusted or made.
std::optional<std::string> own_socket_folder();
// Likewise, in that folder.
std::optional<std::string> own_keeping_path();
// Where such a server may be asked, the likeliest first.
std::vector<std::string> likely_keeping_paths();
// The folders where the admin sockets of such servers are likely to be.
std::vector<std::string> likely_admin_folders();

}  // namespace gpunbd::server
