// Error messages, with remedies, for files that cannot be read.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::config {

// `error` is an errno. `remedy` says how to create a missing file; empty: a configuration file.
std::string why_unreadable(const std::string& path, int error, std::string_view remedy = {});

}  // namespace gpunbd::config
