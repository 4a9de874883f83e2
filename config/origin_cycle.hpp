// An origin on the server itself is an error: the export would wait for itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "config/rules.hpp"

namespace gpunbd::config {

// Where clients reach a server.
struct ServerAddresses {
    std::vector<TcpListener> tcp;
    std::vector<std::string> sockets;  // paths
};

// The first export with an origin on the server that listens there, and the error.
std::optional<rules::ExportError> origin_cycle(const ExportList& exports,
                                               const ServerAddresses& own);

}  // namespace gpunbd::config
