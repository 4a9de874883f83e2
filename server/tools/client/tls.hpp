// The TLS settings of a client. Files are read once, because they may be unreachable without the
// device.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "server/net/credentials/private_file.hpp"
#include "server/tools/client/address.hpp"
#include "server/tools/client/failure.hpp"

namespace gpunbd::client {

// The side that encrypts and decrypts records after the handshake.
enum class TlsBy { process, kernel };

struct FreeTls {
    void operator()(SSL_CTX* context) const noexcept;
    void operator()(SSL* ssl) const noexcept;
};
using Ssl = std::unique_ptr<SSL, FreeTls>;

class Tls {
 public:
    static Expected<std::shared_ptr<const Tls>, Failure> load(const config::NbdTarget& target,
                                                              TlsBy by);

    // Creates a session for a connected, non-blocking socket, which it does not own. Null: out of
    // memory.
    Ssl begin(int fd) const;
    TlsBy by() const { return by_; }
    // The reason for a failed handshake, as text.
    std::string failure_of(const SSL& ssl) const;

    // The PSK callback of OpenSSL.
    unsigned int give_key(char* user, unsigned int user_room, unsigned char* key,
                          unsigned int key_room) const noexcept;

 private:
    Tls(const config::NbdTarget& target, TlsBy by);

    void use_shared_key(const std::string& file);
    void use_certificates(const config::NbdTarget& target);

    const TlsBy by_;
    std::unique_ptr<SSL_CTX, FreeTls> context_;
    std::string server_;       // expected name in the certificate; empty: not checked
    std::string user_;         // user of the shared key; empty: certificates are used
    server::SecretBytes key_;  // the shared key
};

}  // namespace gpunbd::client
