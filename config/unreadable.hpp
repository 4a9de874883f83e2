// Why a file could not be opened or read, and what to do about it.
#pragma once

#include <string>

namespace gpunbd::config {

std::string why_unreadable(const std::string& path, int error);  // `error` as in errno

}  // namespace gpunbd::config
