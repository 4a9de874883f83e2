#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/admin/http/message.hpp"

namespace gpunbd::server::admin {

// A secret that clients send. Comparing it takes the same time whether or not it is right.
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

// Access checks of the admin endpoint. They refuse requests of other sites' pages in a browser that
// reaches the endpoint, also by DNS rebinding, and requests without the token.

// How requests arrive at a listener, and what it requires of them.
struct EndpointPolicy {
    bool tcp = false;
    bool tls = false;                     // with client certificates
    std::string authority = {};           // of TCP: the address and port as in a URL
    std::vector<std::string> names = {};  // other names of this host, without the port
    std::optional<Token> token = {};
    bool kept_only = false;  // serves only kept contents

    // Set: requests may not change anything, for this reason.
    std::optional<std::string> read_only_reason() const;
};

// Each returns the refusal, or nothing if the request may be handled.
// `local_address`: the address and port that the client connected to. `is_page`: the request is for
// a file of the page, which has no secrets and to which other sites may link.
std::optional<Response> check_site(const Request& request, const EndpointPolicy& policy,
                                   const std::string& local_address, bool is_page);
// For requests other than for the page, after check_site().
std::optional<Response> check_access(const Request& request, const EndpointPolicy& policy);

}  // namespace gpunbd::server::admin
