#include "server/net/credentials/private_key.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <stdexcept>

#include "server/net/credentials/private_file.hpp"

namespace gpunbd::server {

namespace {

struct FreeKeyText {
    void operator()(BIO* bio) const noexcept { ::BIO_free(bio); }
};

int no_passphrase(char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
}

}  // namespace

void FreeKey::operator()(EVP_PKEY* key) const noexcept { ::EVP_PKEY_free(key); }

std::unique_ptr<EVP_PKEY, FreeKey> read_private_key(const std::string& path) {
    const SecretBytes text = read_private_file(path, made_by_tls_setup);
    const std::unique_ptr<BIO, FreeKeyText> bio(
        ::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    bool encrypted = false;
    std::unique_ptr<EVP_PKEY, FreeKey> key(
        bio == nullptr ? nullptr
                       : ::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &encrypted));
    if (key) return key;
    ::ERR_clear_error();
    throw std::runtime_error(
        fmt::format("{}: {}", path,
                    encrypted ? "is encrypted, and passphrases are not supported; decrypt it, for "
                                "example by: openssl pkey"
                              : "is not a private key in PEM"));
}

}  // namespace gpunbd::server
