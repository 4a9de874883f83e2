// Rows of text as a table for people, each column as wide as its widest entry.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::config {

// All rows have as many entries as the first.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace gpunbd::config
