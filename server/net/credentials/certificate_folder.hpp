// Certificates, keys and authorities of one folder in the layout of nbdkit, libnbd and QEMU,
// checked as far as files can be, for OpenSSL.
#pragma once

#include <openssl/types.h>

#include <string>

namespace gpunbd::server {

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
