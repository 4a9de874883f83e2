#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpunbd::status {

// Formats numbers in at most five columns, for tables on a terminal.

std::string short_size(double bytes);        // "512", "1.5K", "1023M": binary
std::string short_count(double count);       // "999", "1.5k", "12.3M": decimal
std::string short_duration(double seconds);  // "850us", "1.2ms", "12.0s"; "-": 0
std::string short_age(double seconds);       // "59s", "12m34", "23h59", "365d"

// Makes text from a server safe for a terminal: it contains no control characters and has a known
// width, so that a name can neither forge a line nor shift the columns.

// Valid UTF-8 with characters of one or two columns; everything else becomes '?'.
std::string sanitized(std::string_view text);

// The first character of sanitized text.
struct Character {
    std::size_t bytes = 0;
    std::size_t columns = 0;
};
Character first_character(std::string_view sanitized_text);
std::size_t columns_of(std::string_view sanitized_text);
// Truncates text and marks that with '~', or pads it with spaces.
std::string fitted(std::string_view sanitized_text, std::size_t columns);

}  // namespace gpunbd::status
