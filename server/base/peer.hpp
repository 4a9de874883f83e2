// The identity of a client. The listener creates it; logging, limits and access rules use it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpunbd::server {

// The identity that a client has proved in TLS.
struct TlsIdentity {
    std::vector<std::string> names;  // of the verified certificate: common name, DNS names
    std::string psk_user;            // of the shared key; empty: none was used

    // For the log: "user 'alice'", "certificate 'node-1', 'node-1.example'"; empty: without a
    // proof.
    std::string text() const;
};

struct Peer {
    enum class Kind : std::uint8_t { unknown, tcp, unix_socket, vsock };

    Kind kind = Kind::unknown;
    std::string listener;  // that accepted it: "127.0.0.1:10809", "unix socket /run/x"
    // Kind::tcp
    std::string address;  // numeric IPv4 or IPv6
    std::uint32_t port = 0;
    // Kind::unix_socket
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> groups = {};  // supplementary ones
    // Kind::vsock, with the port
    std::uint32_t cid = 0;
    // Set once the connection uses TLS, also without a certificate or a key
    std::optional<TlsIdentity> tls = {};

    // For the log: "127.0.0.1:50000", "[::1]:50000", "unix:pid=7,uid=0".
    std::string text() const;
};

// Of a connected socket. Kind::unknown if the system does not report the address.
Peer peer_of(int fd, std::string listener);

}  // namespace gpunbd::server
