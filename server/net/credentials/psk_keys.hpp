// Pre-shared keys: the file "user:hexkey" of GnuTLS, which psktool writes and nbdkit and QEMU read.
#pragma once

#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/net/credentials/private_file.hpp"

namespace gpunbd::server {

class PskKeys {
 public:
    // Throws std::runtime_error: "file:line: cause and remedy".
    static PskKeys load(const std::string& path);

    struct Found {
        std::span<const char> key;
        bool known = false;  // otherwise the key is random
    };
    // Compares every user and returns a key in any case, so that neither the reply nor its time
    // reveals to a client without a key whether the user exists.
    Found find(std::string_view user) const noexcept;

    static constexpr std::size_t min_key = 16;  // bytes
    static constexpr std::size_t max_key = 64;
    static constexpr std::size_t max_user = 128;  // bytes of a name; OpenSSL's limit

 private:
    using Digest = std::array<unsigned char, 32>;
    struct Entry {
        Digest user;  // of the name, so that comparing takes the same time for all lengths
        SecretBytes key;
    };

    // `seen`: the users read so far.
    void add(std::string_view line, const std::string& place, std::set<Digest>& seen);

    std::vector<Entry> entries_;
    SecretBytes random_key_;  // for unknown users
};

}  // namespace gpunbd::server
