#include "server/net/credentials/psk_keys.hpp"

#include <fmt/format.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <stdexcept>

#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t random_key_length = 32;  // bytes, as psktool's

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

std::array<unsigned char, 32> digest_of(std::string_view user) noexcept {
    std::array<unsigned char, 32> digest;
    ::SHA256(reinterpret_cast<const unsigned char*>(user.data()), user.size(), digest.data());
    return digest;
}

}  // namespace

PskKeys PskKeys::load(const std::string& path) {
    const SecretBytes text = read_private_file(path, "gpunbd tls-setup DIR --psk USER makes one");
    PskKeys keys;
    std::set<Digest> seen;
    std::string_view rest(text.data(), text.size());
    for (int number = 1; !rest.empty(); ++number) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.empty()) keys.add(line, fmt::format("{}:{}", path, number), seen);
    }
    if (keys.entries_.empty()) {
        throw std::runtime_error(
            fmt::format("{}: has no users; write lines of user:hexkey, for example with: psktool "
                        "-u alice -p {}",
                        path, path));
    }
    keys.random_key_.resize(random_key_length);
    if (::RAND_bytes(reinterpret_cast<unsigned char*>(keys.random_key_.data()),
                     random_key_length) != 1) {
        throw std::runtime_error("the system provides no random numbers");
    }
    return keys;
}

// Errors never contain the key.
void PskKeys::add(std::string_view line, const std::string& place, std::set<Digest>& seen) {
    const auto fail = [&](const std::string& what) {
        throw std::runtime_error(fmt::format("{}: {}", place, what));
    };
    const std::size_t colon = line.rfind(':');
    if (colon == std::string_view::npos) fail("no ':'; write user:hexkey");
    const std::string_view user = line.substr(0, colon);
    const std::string_view digits = line.substr(colon + 1);
    if (user.empty()) fail("the user's name is empty; write user:hexkey");
    if (user.starts_with('#'))
        fail("names in hexadecimal ('#...') are not supported; write the name as text");
    if (user.find('\0') != std::string_view::npos) fail("the user's name contains a NUL byte");
    if (user.size() > max_user) {
        fail(fmt::format("the user's name has {} bytes; the maximum is {}", user.size(), max_user));
    }
    const std::size_t bytes = digits.size() / 2;
    if (digits.size() % 2 != 0 || bytes < min_key || bytes > max_key) {
        fail(
            fmt::format("the key of {} has {} digits; write an even number of hexadecimal digits, "
                        "{} to {}",
                        config::in_quotes(user), digits.size(), 2 * min_key, 2 * max_key));
    }
    Entry entry{.user = digest_of(user), .key = SecretBytes(bytes)};
    for (std::size_t i = 0; i != bytes; ++i) {
        const int high = hex_digit(digits[2 * i]);
        const int low = hex_digit(digits[2 * i + 1]);
        if (high < 0 || low < 0) {
            fail(fmt::format("the key of {} contains characters that are not hexadecimal digits",
                             config::in_quotes(user)));
        }
        entry.key[i] = static_cast<char>(high << 4 | low);
    }
    if (!seen.insert(entry.user).second) {
        fail(fmt::format("the user {} is listed twice; give each user one key",
                         config::in_quotes(user)));
    }
    entries_.push_back(std::move(entry));
}

PskKeys::Found PskKeys::find(std::string_view user) const noexcept {
    const Digest wanted = digest_of(user);
    std::size_t found = entries_.size();
    for (std::size_t i = 0; i != entries_.size(); ++i) {
        const bool fits =
            ::CRYPTO_memcmp(entries_[i].user.data(), wanted.data(), wanted.size()) == 0;
        found = fits ? i : found;
    }
    if (found == entries_.size()) return {.key = random_key_, .known = false};
    return {.key = entries_[found].key, .known = true};
}

}  // namespace gpunbd::server
