// What the keys of an export do not say of an export that was created at run time, as comments at
// the beginning of its YAML text.
#pragma once

#include <string>
#include <string_view>

#include "config/options.hpp"

namespace gpunbd::server {

// Lines; empty: there is nothing to say.
std::string origin_comments(const config::Origin& origin);
// The origin in the comments at the beginning of a text, of an export created at run time.
config::Origin origin_in(std::string_view text);

}  // namespace gpunbd::server
