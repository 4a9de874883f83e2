// Does anything keep strangers out? Whoever reaches a listener on an address of the network can do
// what the configuration lets everybody do.
#pragma once

#include <optional>
#include <string>

#include "config/options.hpp"

namespace gpunbd::server {

// The exports that every TCP client may open in the clear, in words; nothing where each is to be
// had in TLS only, or has a list without a rule for everybody.
std::optional<std::string> open_to_all(const config::Options& options);

// TLS in which clients prove nothing, and an export that has no list: a warning; else nothing.
std::optional<std::string> unproved_in_tls(const config::Options& options);

// What is wrong with listening at `where`, and what would be right.
std::string exposure_text(const std::string& where, const std::string& open);
// What it means that it is done all the same.
std::string insecure_text(const std::string& where, const std::string& open);

}  // namespace gpunbd::server
