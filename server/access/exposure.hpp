// Does anything keep strangers out? Whoever reaches a listener on an address of the network can do
// what the configuration lets everybody do.
#pragma once

#include <optional>
#include <string>

#include "config/options.hpp"

namespace gpunbd::server {

// The exports that every TCP client may open, in words; nothing where TLS is required, which only
// those pass who can prove who they are, or where each export has a list without a rule for
// everybody.
std::optional<std::string> open_to_all(const config::Options& options);

// What is wrong with listening at `where`, and what would be right.
std::string exposure_text(const std::string& where, const std::string& open);
// What it means that it is done all the same.
std::string insecure_text(const std::string& where, const std::string& open);

}  // namespace gpunbd::server
