#pragma once

#include <openssl/types.h>

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::server {

// OpenSSL keeps errors in a queue per thread. Every function here leaves it empty.

// Takes the first error as text ("no shared cipher") and clears the queue; `otherwise` if it is
// empty. Allocates.
std::string take_openssl_error(const char* otherwise);

// When certificates and lists of revoked ones are valid.

// Certificates that expire within this time should be replaced.
inline constexpr std::time_t expires_soon = 30 * 24 * 3600;

// The time in which TLS can use a file, in seconds since 1970.
struct Validity {
    std::string path;
    std::time_t from = 0;
    std::time_t until = 0;
};

// Of a certificate and the chain that follows it in the file. Empty: it cannot be read.
std::optional<Validity> chain_validity(const std::string& path);
// Of the files that a server with these options uses. Files that cannot be read are missing.
std::vector<Validity> server_validities(const config::Options& options);

// "PATH: expired on DATE; create a new one"; empty: it is valid.
std::string why_invalid(const Validity& its, std::time_t now);

// For the log of a server.
struct ValidityWarning {
    bool invalid = false;  // otherwise it expires soon
    std::string text;
};
std::optional<ValidityWarning> validity_warning(const Validity& its, std::time_t now);

// Private keys in PEM files, without passphrases.
struct FreeKey {
    void operator()(EVP_PKEY* key) const noexcept;
};

// For messages about missing keys and certificates.
inline constexpr std::string_view made_by_tls_setup =
    "gpunbd tls-setup makes what servers and clients need";

// Throws std::runtime_error as read_private_file() does, and if the file is encrypted or not a key.
std::unique_ptr<EVP_PKEY, FreeKey> read_private_key(const std::string& path);

// Certificates, keys and authorities of one folder in the layout of nbdkit, libnbd and QEMU,
// checked as far as files can be, for OpenSSL.

inline constexpr const char* authority_file = "ca-cert.pem";
inline constexpr const char* revoked_file = "ca-crl.pem";
inline constexpr const char* server_certificate_file = "server-cert.pem";
inline constexpr const char* server_key_file = "server-key.pem";
inline constexpr const char* client_certificate_file = "client-cert.pem";
inline constexpr const char* client_key_file = "client-key.pem";

std::string in_folder(const std::string& folder, const char* name);

// Throws std::runtime_error with the path of the file at fault.

// Loads certificate and key, which must match. The dates are not checked; see Validity.
void use_certificate(SSL_CTX& context, const std::string& certificate, const std::string& key);
// Loads the authority and its revocation list.
void trust_authority(SSL_CTX& context, const std::string& folder);

}  // namespace gpunbd::server
