// A secret that clients show. How long a wrong one takes to be refused tells nothing of it.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace gpunbd::server::admin {

class Token {
 public:
    static constexpr std::size_t min_length = 16;

    // The file holds it, and nothing else but the end of its line. Throws std::runtime_error: it
    // cannot be read, others may read it, or it is no token.
    static Token load(const std::string& path);

    bool is(std::string_view shown) const;

 private:
    using Digest = std::array<unsigned char, 32>;
    explicit Token(const Digest& digest) : digest_(digest) {}

    Digest digest_;
};

}  // namespace gpunbd::server::admin
