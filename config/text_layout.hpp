#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpunbd::config {

// A time as text, for the log and for tables.

// "2026-11-22 09:12:44", from seconds since 1970; "-" if the time is out of range.
std::string local_time_text(std::int64_t seconds);

// Wraps text to 80 columns.

// "head    text\n": all lines of the text start in `column`; the first follows a longer head.
std::string wrapped(std::string head, const std::string& text, std::size_t column);

// Formats rows as a table; each column is as wide as its widest entry.

// All rows must have the same number of entries.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace gpunbd::config
