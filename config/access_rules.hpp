// The arguments of `gpunbd check --who`: a client and its TLS identity.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::config {

struct AccessQuery {
    std::string client;
    std::optional<std::string> tls_name = {};
    std::optional<std::string> psk_user = {};
};

}  // namespace gpunbd::config
