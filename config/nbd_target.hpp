// Parses an NBD URI (NBD's doc/uri.md), including libnbd's parameters for TLS.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::config {

struct NbdTarget {
    bool tls = false;
    std::string host = {};  // name or numeric address; empty: use `socket`
    std::string port = "10809";
    std::string socket = {};  // path
    std::string export_name = {};
    std::string user = {};          // user of the shared key
    std::string psk_file = {};      // tls-psk-file; replaces certificates
    std::string certificates = {};  // tls-certificates: a folder; empty: the system's authorities
    std::string tls_hostname = {};  // tls-hostname: expected name in the certificate; empty: host
    bool verify = true;             // tls-verify-peer
};

// Throws std::runtime_error with the problem and its remedy.
NbdTarget parse_nbd_uri(std::string_view uri);

// RFC 6761, 6.3: these names are the loopback interface, even if /etc/hosts does not list them.
bool is_localhost(std::string_view host);

}  // namespace gpunbd::config
