// Which export of which server an NBD URI names (NBD's doc/uri.md), for commands that are clients:
// the parts of the URI, with the parameters that libnbd has for TLS.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::client {

struct NbdTarget {
    bool tls = false;
    std::string host = {};  // name or numeric address; empty: `socket` counts
    std::string port = "10809";
    std::string socket = {};  // path
    std::string export_name = {};
    std::string user = {};          // whose shared key
    std::string psk_file = {};      // tls-psk-file: instead of certificates
    std::string certificates = {};  // tls-certificates: folder; empty: the system's authorities
    std::string tls_hostname = {};  // tls-hostname: whom the certificate has to name; empty: host
    bool verify = true;             // tls-verify-peer
};

// Throws std::runtime_error, which says what would be right.
NbdTarget parse_nbd_uri(std::string_view uri);

}  // namespace gpunbd::client
