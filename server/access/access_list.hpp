// Who may do what with an export: its rules in order, of which the first that matches decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/connection/peer.hpp"

namespace gpunbd::server {

// A peer as rules look at it.
struct Applicant {
    explicit Applicant(const Peer& who);

    const Peer& peer;
    // Of a TCP client; IPv4 that a socket for both has accepted is IPv4, and nothing else.
    std::optional<config::IpAddress> address;
};

// One rule: all that it names must match. What it knows nothing of never does.
class AccessRule {
 public:
    explicit AccessRule(const config::AccessRule& options);

    bool matches(const Applicant& applicant) const;
    config::AccessMode mode() const { return options_.mode; }
    // "network 10.0.0.0/8, tls_name client.example.com"
    std::string text() const;

 private:
    config::AccessRule options_;  // names of TLS in lower case
};

enum class Access : std::uint8_t { denied, read_only, read_write };

struct Verdict {
    Access access = Access::denied;
    std::optional<std::size_t> rule = {};  // that decided, from 0
};

class AccessList {
 public:
    AccessList() = default;  // everybody may
    // Without rules: the same.
    explicit AccessList(const std::vector<config::AccessRule>& rules);

    Verdict decide(const Applicant& applicant) const;
    // "rule 2 matches: network 10.0.0.0/8"
    std::string why(const Verdict& verdict) const;

 private:
    std::vector<AccessRule> rules_;
};

}  // namespace gpunbd::server
