// A secret that clients send. Comparing it takes the same time whether or not it is right.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace gpunbd::server::admin {

class Token {
 public:
    static constexpr std::size_t min_length = 16;

    // The file has the token as its only line. Throws std::runtime_error if the file cannot be
    // read, if other users may read it, or if it is not a token.
    static Token load(const std::string& path);

    bool matches(std::string_view sent) const;

 private:
    using Digest = std::array<unsigned char, 32>;
    explicit Token(const Digest& digest) : digest_(digest) {}

    Digest digest_;
};

}  // namespace gpunbd::server::admin
