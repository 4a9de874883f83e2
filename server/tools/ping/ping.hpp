// `gpunbd ping`: does a server answer for an export? It runs a client's handshake up to
// NBD_OPT_INFO, so that it does not count as a connection of the export.
#pragma once

#include <chrono>
#include <string>

#include "server/tools/client/failure.hpp"
#include "server/tools/client/nbd_target.hpp"

namespace gpunbd::server {

// One line for standard output, or why the export cannot be opened.
Or<std::string> ping(const client::NbdTarget& target, std::chrono::seconds within);

}  // namespace gpunbd::server
