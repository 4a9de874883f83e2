#pragma once

#include <string>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::server {

// `gpunbd tls-setup`: creates a certificate authority, certificates for a server and its clients,
// and shared keys, in the files that nbdkit, libnbd, QEMU and gpunbd use.
struct TlsSetupOptions {
    std::string folder;
    std::vector<std::string> hosts = {};    // names and numeric addresses of one server
    std::vector<std::string> clients = {};  // names that are valid as folder names
    std::vector<std::string> users = {};    // of shared keys; the names are valid as folder names
    bool renew = false;                     // the server's certificate, and those of `clients`
    int days = 730;                         // validity of the server and client certificates
};

// Creates these files in the folder:
//   ca-cert.pem, ca-key.pem              the authority, unless it exists
//   server-cert.pem, server-key.pem      with hosts
//   keys.psk                             with users: one line for each, after existing lines
//   clients/NAME/                        for each client and user, to be copied to its machine:
//     ca-cert.pem, client-cert.pem, client-key.pem, keys.psk
// With `renew`, replaces only certificates, by ones for the same keys and names. Keys have mode
// 0600 and folders 0700. Creates all files or none. Returns instructions for the
// user. Throws std::runtime_error with the problem and its remedy.
std::string set_up_tls(const TlsSetupOptions& command);

}  // namespace gpunbd::server

namespace gpunbd::tools {

// `gpunbd tls-setup`
class TlsSetupCommand final : public config::Command {
 public:
    TlsSetupCommand();
    void check() override;
    int run(const config::Commands& all) override;

    server::TlsSetupOptions settings;
};

}  // namespace gpunbd::tools
