// Private keys in PEM files, without passphrases.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>
#include <string_view>

namespace gpunbd::server {

struct FreeKey {
    void operator()(EVP_PKEY* key) const noexcept;
};

// For messages about missing keys and certificates.
inline constexpr std::string_view made_by_tls_setup =
    "gpunbd tls-setup makes what servers and clients need";

// Throws std::runtime_error as read_private_file() does, and if the file is encrypted or not a key.
std::unique_ptr<EVP_PKEY, FreeKey> read_private_key(const std::string& path);

}  // namespace gpunbd::server
