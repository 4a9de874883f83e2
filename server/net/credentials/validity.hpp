// When certificates and lists of revoked ones are valid.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::server {

// Certificates that expire within this time should be replaced.
inline constexpr std::time_t expires_soon = 30 * 24 * 3600;

// The time in which TLS can use a file, in seconds since 1970.
struct Validity {
    std::string path;
    std::time_t from = 0;
    std::time_t until = 0;
};

// Of a certificate and the chain that follows it in the file. Empty: it cannot be read.
std::optional<Validity> chain_validity(const std::string& path);
// Of the files that a server with these options uses. Files that cannot be read are missing.
std::vector<Validity> server_validities(const config::Options& options);

// "PATH: expired on DATE; create a new one"; empty: it is valid.
std::string why_invalid(const Validity& its, std::time_t now);

// For the log of a server.
struct ValidityWarning {
    bool invalid = false;  // otherwise it expires soon
    std::string text;
};
std::optional<ValidityWarning> validity_warning(const Validity& its, std::time_t now);

}  // namespace gpunbd::server
