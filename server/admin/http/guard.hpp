// Access checks of the admin endpoint. They refuse requests of other sites' pages in a browser that
// reaches the endpoint, also by DNS rebinding, and requests without the token.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/admin/http/message.hpp"
#include "server/admin/http/token.hpp"

namespace gpunbd::server::admin {

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
