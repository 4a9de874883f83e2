// What a client needs for TLS, read from files once and never changed: when a server has died, its
// files may be out of reach without the very device.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "server/net/credentials/private_file.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/nbd_target.hpp"

namespace gpunbd::client {

// Who seals and opens the records after the handshake.
enum class TlsBy { process, kernel };

struct FreeTls {
    void operator()(SSL_CTX* context) const noexcept;
    void operator()(SSL* ssl) const noexcept;
};
using Ssl = std::unique_ptr<SSL, FreeTls>;

class Tls {
 public:
    static Or<std::shared_ptr<const Tls>> load(const NbdTarget& target, TlsBy by);

    // For a connected socket, non-blocking, which stays its owner's. Null: no memory.
    Ssl begin(int fd) const;
    TlsBy by() const { return by_; }
    // What went wrong in a handshake, in words.
    std::string failure_of(const SSL& ssl) const;

    // For the callback of OpenSSL.
    unsigned int give_key(char* user, unsigned int user_room, unsigned char* key,
                          unsigned int key_room) const noexcept;

 private:
    Tls(const NbdTarget& target, TlsBy by);

    void use_shared_key(const std::string& file);
    void use_certificates(const NbdTarget& target);

    const TlsBy by_;
    std::unique_ptr<SSL_CTX, FreeTls> context_;
    std::string server_;       // whom its certificate has to name; empty: anybody
    std::string user_;         // whose shared key; empty: certificates
    server::SecretBytes key_;  // the shared one
};

}  // namespace gpunbd::client
