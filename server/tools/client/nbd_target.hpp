// Parses an NBD URI (NBD's doc/uri.md), including libnbd's parameters for TLS.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::client {

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

// The addresses of a server. They are resolved once, because the name server may be unreachable
// without the device.
struct Address {
    struct SocketAddress {
        sockaddr_storage storage{};
        socklen_t length = 0;
    };
    std::string text;  // for messages
    std::vector<SocketAddress> addresses;
};

Expected<Address, Failure> resolve(const NbdTarget& target);

// Returns a connected, non-blocking socket. Tries all addresses and divides the time among them.
Expected<OwnedFd, Failure> dial(const Address& address, Deadline until);

}  // namespace gpunbd::client
