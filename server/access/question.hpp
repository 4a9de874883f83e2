// `gpunbd check --who`: what a client may open, and why, by the configuration alone.
#pragma once

#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "config/options.hpp"
#include "server/connection/peer.hpp"

namespace gpunbd::server {

// "10.1.2.3", "unix:uid=1000,gid=100" (more gids: supplementary groups), "vsock:3"; and what it
// shows in TLS. Throws std::runtime_error where there can be no such client.
Peer client_in_question(const config::Question& question);

// A line for each export, in the order of the file.
std::vector<std::string> what_it_may_open(const config::Options& options, const Peer& peer);

}  // namespace gpunbd::server
