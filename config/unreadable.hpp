// Why a file could not be opened or read, and what to do about it.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::config {

// `error` as in errno; `remedy`: how to make the file where it is missing. Empty: it is YAML.
std::string why_unreadable(const std::string& path, int error, std::string_view remedy = {});

}  // namespace gpunbd::config
