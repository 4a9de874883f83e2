// Checks which exports have `keep: true`.
#pragma once

#include <algorithm>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::server {

inline bool any_keeps(const config::ExportList& exports) {
    return std::any_of(exports.begin(), exports.end(), [](const auto& each) { return each.keep; });
}

inline bool all_keep(const config::ExportList& exports) {
    return std::all_of(exports.begin(), exports.end(), [](const auto& each) { return each.keep; });
}

}  // namespace gpunbd::server
