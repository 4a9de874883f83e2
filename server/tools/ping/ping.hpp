// `gpunbd ping`: checks whether a server serves an export. It performs the handshake up to
// NBD_OPT_INFO, so that it does not count as a connection of the export. It shares no code with the
// negotiation of the server, so a fault in one of the two is visible in the other.
#pragma once

#include <chrono>
#include <string>

#include "server/tools/client/failure.hpp"
#include "server/tools/client/handshake.hpp"
#include "server/tools/client/nbd_target.hpp"

namespace gpunbd::server {

struct PingAnswer {
    std::string name;  // of the export
    client::ExportFacts facts;
};

// Returns the reason if the export is not available.
Expected<PingAnswer, Failure> ping(const client::NbdTarget& target, std::chrono::seconds within);

}  // namespace gpunbd::server
