#include "server/admin/http/token.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "server/net/credentials/private_file.hpp"

namespace gpunbd::server::admin {

namespace {

using Sha256 = std::array<unsigned char, 32>;

// Comparing digests takes the same time for texts of any length.
Sha256 digest_of(std::string_view text) {
    Sha256 digest{};
    if (::EVP_Digest(text.data(), text.size(), digest.data(), nullptr, ::EVP_sha256(), nullptr) !=
        1) {
        throw std::bad_alloc();
    }
    return digest;
}

bool is_allowed(char c) { return c > ' ' && c < 0x7f; }

}  // namespace

Token Token::load(const std::string& path) {
    const SecretBytes bytes = read_private_file(
        path, fmt::format("create one: (umask 077; openssl rand -hex 32 > {})", path));
    std::string_view text(bytes.data(), bytes.size());
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    if (text.size() < min_length || !std::all_of(text.begin(), text.end(), is_allowed)) {
        throw std::runtime_error(
            fmt::format("{}: the file must have one line of at least {} characters without spaces; "
                        "create one: openssl rand -hex 32",
                        path, min_length));
    }
    return Token(digest_of(text));
}

bool Token::matches(std::string_view sent) const {
    const Sha256 other = digest_of(sent);
    return ::CRYPTO_memcmp(other.data(), digest_.data(), digest_.size()) == 0;
}

}  // namespace gpunbd::server::admin
