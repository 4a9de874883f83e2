// Keys and certificates for TLS, as PEM: made by OpenSSL's library, in memory only.
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

// A key on the curve P-256, and a certificate for it. Everything here throws std::runtime_error
// where OpenSSL fails.
struct Identity {
    PrivateKey key;
    Certificate certificate;
};

using Days = std::chrono::duration<int, std::ratio<86400>>;

// A certificate authority that signs itself, and others only directly.
Identity make_authority(const std::string& name, Days valid);
// From its two files. Throws where they are none, do not belong together, or have expired.
Identity read_authority(const std::string& certificate_pem, const std::string& key_pem);
// For a server of these names: DNS names and numeric addresses, the first also as common name.
Identity make_server(const Identity& authority, const std::vector<std::string>& hosts, Days valid);
// For a client; its name is the common name.
Identity make_client(const Identity& authority, const std::string& name, Days valid);

std::string pem(const X509& certificate);
std::string pem(const EVP_PKEY& key);
// The last day, as 2028-11-21.
std::string last_day(const X509& certificate);

// 256 random bits, in hexadecimal digits.
std::string make_shared_key();

}  // namespace gpunbd::server
