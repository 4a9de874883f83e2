// Formats rows as a table; each column is as wide as its widest entry.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::config {

// All rows must have the same number of entries.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace gpunbd::config
