// Access rules of an export. The first rule that matches decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/base/peer.hpp"

namespace gpunbd::server {

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
