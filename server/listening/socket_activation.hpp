// Sockets handed over by systemd, or by a program that does as systemd does (sd_listen_fds(3)).
#pragma once

#include <vector>

namespace gpunbd::server {

// The inherited descriptors, made close-on-exec; empty where there are none for this process. The
// environment is cleaned, so that no child takes them for its own. Throws std::runtime_error where
// it makes no sense: whoever hands sockets over does not want others opened instead.
std::vector<int> take_inherited_sockets();

}  // namespace gpunbd::server
