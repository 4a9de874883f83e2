// Makes text from a server safe for a terminal: it contains no control characters and has a known
// width, so that a name can neither forge a line nor shift the columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpunbd::status {

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
