// Text from a server on a terminal: nothing in it that the terminal would obey, and known columns,
// so that a name can neither forge a line nor push one out of its place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpunbd::status {

// Valid UTF-8 of characters that take one or two columns; all else is '?'.
std::string sanitized(std::string_view text);

// The first character of text that is sanitized.
struct Character {
    std::size_t bytes = 0;
    std::size_t columns = 0;
};
Character first_character(std::string_view sanitized_text);
std::size_t columns_of(std::string_view sanitized_text);
// Cut where it is longer, with '~' for the rest, and filled with spaces where it is shorter.
std::string fitted(std::string_view sanitized_text, std::size_t columns);

}  // namespace gpunbd::status
