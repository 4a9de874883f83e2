// `gpunbd tls-setup`: what TLS needs, for people who have none of it. A certificate authority, the
// certificate of a server and of its clients, shared keys, in the files that nbdkit, libnbd, QEMU
// and gpunbd itself look for.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

struct TlsSetupOptions {
    std::string folder;
    std::vector<std::string> hosts = {};    // names and numeric addresses of one server
    std::vector<std::string> clients = {};  // names, each of which can be that of a folder
    std::vector<std::string> users = {};    // of shared keys, likewise
    int days = 730;  // for which certificates of servers and clients are valid
};

// In the folder afterwards, besides what was there:
//   ca-cert.pem, ca-key.pem              the authority; one that is there is used
//   server-cert.pem, server-key.pem      with hosts
//   keys.psk                             with users: a line for each, behind those that are there
//   clients/NAME/                        for each client and user, what has to be copied to them:
//     ca-cert.pem, client-cert.pem, client-key.pem, keys.psk
// Keys have mode 0600 and folders 0700. All of it is made, or nothing. Returns what to do with it,
// for people. Throws std::runtime_error, which says what is in the way.
std::string set_up_tls(const TlsSetupOptions& command);

}  // namespace gpunbd::server
