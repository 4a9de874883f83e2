// Certificate, key, client authority, pre-shared keys and TLS settings of a server. Immutable: a
// reload makes another one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/options.hpp"
#include "protocol/negotiation.hpp"
#include "server/net/credentials/psk_keys.hpp"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace gpunbd::server {

class TlsContext {
 public:
    // Reads the files. Null: TLS is off. Throws std::runtime_error with a one-line message.
    static std::shared_ptr<const TlsContext> load(const config::Options& options);

    protocol::TlsMode mode() const { return mode_; }
    bool verifies_clients() const { return verifies_clients_; }
    const std::optional<PskKeys>& psk() const { return psk_; }
    ssl_ctx_st& native() const { return *native_; }

 private:
    explicit TlsContext(const config::TlsOptions& options);
    void read_certificates(const config::TlsOptions& options);
    void read_authority(const std::string& folder);

    struct Free {
        void operator()(ssl_ctx_st* context) const noexcept;
    };
    protocol::TlsMode mode_;
    bool verifies_clients_ = false;
    std::optional<PskKeys> psk_;
    std::unique_ptr<ssl_ctx_st, Free> native_;
};

}  // namespace gpunbd::server
