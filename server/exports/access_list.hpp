#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/access_rules.hpp"
#include "config/options.hpp"
#include "server/base/peer.hpp"

namespace gpunbd::server {

// Checks whether unknown clients can use the exports: every client that can reach a network
// listener has the access that the configuration grants to all clients.

// Text that names the exports that every TCP client may open without TLS. None: each one requires
// TLS or has a list without a rule that matches all clients.
std::optional<std::string> open_to_all(const config::Options& options);

// A warning if TLS does not verify clients and an export has no access list; otherwise none.
std::optional<std::string> unproved_in_tls(const config::Options& options);

// A warning if TLS is off and certificates or shared keys are configured without effect; else none.
std::optional<std::string> unused_credentials(const config::Options& options);

// The error for listening at `where`, with the remedy.
std::string exposure_text(const std::string& where, const std::string& open);
// The warning if the configuration accepts this.
std::string insecure_text(const std::string& where, const std::string& open);

// Evaluates which exports a client may open, from the configuration only (`gpunbd check --who`).

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

// The properties of a peer that rules match.
struct PeerIdentity {
    explicit PeerIdentity(const Peer& who);

    const Peer& peer;
    // The address of a TCP client. An IPv4 client of a dual-stack socket counts as IPv4.
    std::optional<config::IpAddress> address;
};

// One rule. Everything that it names must match; a property that the peer does not have never
// matches.
class AccessRule {
 public:
    explicit AccessRule(const config::AccessRule& options);

    bool matches(const PeerIdentity& applicant) const;
    config::AccessMode mode() const { return options_.mode; }
    // "network 10.0.0.0/8, tls_name client.example.com"
    std::string text() const;

 private:
    config::AccessRule options_;  // TLS names in lower case
};

enum class Access : std::uint8_t { denied, read_only, read_write };

struct Verdict {
    Access access = Access::denied;
    std::optional<std::size_t> rule = {};  // that decided, counted from 0
};

// Access rules of an export. The first rule that matches decides.
class AccessList {
 public:
    AccessList() = default;  // open to everyone
    // Without rules: open to all clients.
    explicit AccessList(const std::vector<config::AccessRule>& rules);

    Verdict decide(const PeerIdentity& applicant) const;
    // "rule 2 matches: network 10.0.0.0/8"
    std::string why(const Verdict& verdict) const;

 private:
    std::vector<AccessRule> rules_;
};

}  // namespace gpunbd::server
