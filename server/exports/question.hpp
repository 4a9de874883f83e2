// `gpunbd check --who`: evaluates which exports a client may open, from the configuration alone.
#pragma once

#include <string>
#include <vector>

#include "config/options.hpp"
#include "config/question.hpp"
#include "server/base/peer.hpp"

namespace gpunbd::server {

// "10.1.2.3", "unix:uid=1000,gid=100" (more gids: supplementary groups), "vsock:3"; and its TLS
// identity. Throws std::runtime_error if no such client can exist.
Peer client_in_question(const config::Question& question);

// One line per export, in the order of the file.
std::vector<std::string> what_it_may_open(const config::Options& options, const Peer& peer);

}  // namespace gpunbd::server
