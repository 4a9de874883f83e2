// Creates keys and certificates for TLS as PEM, in memory, with OpenSSL.
#pragma once

#include <openssl/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gpunbd::server {

struct FreeOpenSsl {
    void operator()(EVP_PKEY* key) const;
    void operator()(X509* certificate) const;
};
using PrivateKey = std::unique_ptr<EVP_PKEY, FreeOpenSsl>;
using Certificate = std::unique_ptr<X509, FreeOpenSsl>;

// A key on the curve P-256, and a certificate for it. All functions throw std::runtime_error if
// OpenSSL fails.
struct Identity {
    PrivateKey key;
    Certificate certificate;
};

using Days = std::chrono::duration<int, std::ratio<86400>>;

// A self-signed certificate authority that cannot sign other authorities.
Identity make_authority(const std::string& name, Days valid);
// Parses an authority. Throws if the files are invalid, do not match, or have expired.
Identity read_authority(const std::string& certificate_pem, const std::string& key_pem);
// A server certificate for DNS names and numeric addresses; the first is also the common name.
Identity make_server(const Identity& authority, const std::vector<std::string>& hosts, Days valid);
// A client certificate with the name as common name.
Identity make_client(const Identity& authority, const std::string& name, Days valid);

// A certificate for the key, the names and the purpose of an earlier one of this authority. Throws
// if that is invalid, or of another authority.
Certificate renewed(const Identity& authority, const std::string& certificate_pem, Days valid);

std::string pem(const X509& certificate);
std::string pem(const EVP_PKEY& key);
// The last day of validity, for example 2028-11-21.
std::string last_day(const X509& certificate);

// 256 random bits as hexadecimal digits.
std::string make_shared_key();

}  // namespace gpunbd::server
