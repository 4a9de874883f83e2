// Explains that an admin socket was expected where an NBD server answers.
#pragma once

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"

namespace gpunbd::status {

// `connection`: to the socket. Names the admin socket of the same server process if it is found by
// the deadline.
Failure answered_by_nbd(const AdminServer& server, int connection, client::Deadline until);

}  // namespace gpunbd::status
