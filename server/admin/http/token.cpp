#include "server/admin/http/token.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "server/credentials/private_file.hpp"

namespace gpunbd::server::admin {

namespace {

using Sha256 = std::array<unsigned char, 32>;

// Of texts of all lengths something that takes as long to compare.
Sha256 digest_of(std::string_view text) {
    Sha256 digest{};
    if (::EVP_Digest(text.data(), text.size(), digest.data(), nullptr, ::EVP_sha256(), nullptr) !=
        1) {
        throw std::bad_alloc();
    }
    return digest;
}

bool can_be_sent(char c) { return c > ' ' && c < 0x7f; }

}  // namespace

Token Token::load(const std::string& path) {
    const SecretBytes bytes = read_private_file(path);
    std::string_view text(bytes.data(), bytes.size());
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    if (text.size() < min_length || !std::all_of(text.begin(), text.end(), can_be_sent)) {
        throw std::runtime_error(
            fmt::format("{}: holds no token: one line of at least {} characters without spaces; "
                        "make one: openssl rand -hex 32",
                        path, min_length));
    }
    return Token(digest_of(text));
}

bool Token::is(std::string_view shown) const {
    const Sha256 other = digest_of(shown);
    return ::CRYPTO_memcmp(other.data(), digest_.data(), digest_.size()) == 0;
}

}  // namespace gpunbd::server::admin
