// Evaluates which exports a client may open, from the configuration only (`gpunbd check --who`).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/access_query.hpp"
#include "config/options.hpp"
#include "server/base/peer.hpp"

namespace gpunbd::server {

// Returns the peer for "10.1.2.3", "unix:uid=1000,gid=100" (further gids are supplementary groups)
// or "vsock:3", with the TLS identity of the query. Throws std::runtime_error if the text is
// invalid.
Peer peer_of(const config::AccessQuery& query);

// What a client may do with an export, and why.
struct ExportAccess {
    std::string name = {};
    std::string access = {};       // "denied", "read-only" or "read-write"
    std::string why = {};          // the rule
    std::optional<int> line = {};  // of the rule in the file
    bool opens = false;
    bool read_only = false;  // the export itself
    bool in_tls = false;     // only there

    // One line.
    std::string text() const;
};

// In the order of the configuration.
std::vector<ExportAccess> access_report(const config::Options& options, const Peer& peer);

}  // namespace gpunbd::server
