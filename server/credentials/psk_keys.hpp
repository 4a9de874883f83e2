// Keys that clients share with the server: the file "user:hexkey" of GnuTLS, which psktool makes
// and nbdkit and QEMU read.
#pragma once

#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/credentials/private_file.hpp"

namespace gpunbd::server {

class PskKeys {
 public:
    // Throws std::runtime_error: "file:line: what is wrong, what would be right".
    static PskKeys load(const std::string& path);

    struct Found {
        std::span<const char> key;
        bool known = false;  // else the key is one that nobody has
    };
    // Looks at every user, however early one fits, and finds a key for anybody: who does not know
    // a key does not learn by the answer, or by its time, whether there is such a user.
    Found find(std::string_view user) const noexcept;

    static constexpr std::size_t min_key = 16;  // bytes
    static constexpr std::size_t max_key = 64;
    static constexpr std::size_t max_user = 128;  // bytes of a name; OpenSSL's limit

 private:
    using Digest = std::array<unsigned char, 32>;
    struct Entry {
        Digest user;  // of the name, so that names of all lengths compare alike
        SecretBytes key;
    };

    // `seen`: the users so far.
    void add(std::string_view line, const std::string& place, std::set<Digest>& seen);

    std::vector<Entry> entries_;
    SecretBytes nobodys_;
};

}  // namespace gpunbd::server
