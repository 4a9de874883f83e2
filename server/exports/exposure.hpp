// Checks whether strangers can use the exports: a client that reaches a network listener has all
// access that the configuration grants to everyone.
#pragma once

#include <optional>
#include <string>

#include "config/options.hpp"

namespace gpunbd::server {

// Text that names the exports that every TCP client may open without TLS. None: each one requires
// TLS or has a list without a rule for everyone.
std::optional<std::string> open_to_all(const config::Options& options);

// A warning if clients prove nothing in TLS and an export has no list; else none.
std::optional<std::string> unproved_in_tls(const config::Options& options);

// A warning if TLS is off and certificates or shared keys are configured without effect; else none.
std::optional<std::string> unused_credentials(const config::Options& options);

// The error for listening at `where`, with the remedy.
std::string exposure_text(const std::string& where, const std::string& open);
// The warning if it is done nevertheless.
std::string insecure_text(const std::string& where, const std::string& open);

}  // namespace gpunbd::server
