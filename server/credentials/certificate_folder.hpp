// The certificates, keys and authorities of one folder, in the layout of nbdkit, libnbd and QEMU:
// what a server or a client gives to OpenSSL, checked as far as files can be.
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

// Each throws std::runtime_error, with the path of the file that is wrong.

// Who the holder of `context` is. It is in date, and the key is that of the certificate.
void use_certificate(SSL_CTX& context, const std::string& certificate, const std::string& key);
// Whose certificates count: the folder's authority, less what its list says is revoked.
void trust_authority(SSL_CTX& context, const std::string& folder);

}  // namespace gpunbd::server
