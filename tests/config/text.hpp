// Problems as one text.
#pragma once

#include <string>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

inline std::string joined(const std::vector<Problem>& problems) {
    std::string out;
    for (const Problem& problem : problems) out += problem.text() + "\n";
    return out;
}

}  // namespace gpunbd::config
