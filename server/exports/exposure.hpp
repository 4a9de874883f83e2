// Checks whether unknown clients can use the exports: every client that can reach a network
// listener has the access that the configuration grants to all clients.
#pragma once

#include <optional>
#include <string>

#include "config/options.hpp"

namespace gpunbd::server {

// Text that names the exports that every TCP client may open without TLS. None: each one requires
// TLS or has a list without a rule that matches all clients.
std::optional<std::string> open_to_all(const config::Options& options);

// A warning if TLS does not verify clients and an export has no access list; otherwise none.
std::optional<std::string> unproved_in_tls(const config::Options& options);

// A warning if TLS is off and certificates or shared keys are configured without effect; else none.
std::optional<std::string> unused_credentials(const config::Options& options);

// The error for listening at `where`, with the remedy.
std::string exposure_text(const std::string& where, const std::string& open);
// The warning if the configuration accepts this.
std::string insecure_text(const std::string& where, const std::string& open);

}  // namespace gpunbd::server
