// Private keys in files, as PEM, with nobody there to ask for a passphrase.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

namespace gpunbd::server {

struct FreeKey {
    void operator()(EVP_PKEY* key) const noexcept;
};

// Throws std::runtime_error, as read_private_file() does, and where it is encrypted or no key.
std::unique_ptr<EVP_PKEY, FreeKey> read_private_key(const std::string& path);

}  // namespace gpunbd::server
