// Helpers of these tests: the contents of files, and problems as one text.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

inline std::string slurp(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
}

inline std::string joined(const std::vector<Problem>& problems) {
    std::string out;
    for (const Problem& problem : problems) out += problem.text() + "\n";
    return out;
}

}  // namespace gpunbd::config
