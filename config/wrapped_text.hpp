// Wraps text to 80 columns.
#pragma once

#include <cstddef>
#include <string>

namespace gpunbd::config {

// "head    text\n": all lines of the text start in `column`; the first follows a longer head.
std::string wrapped(std::string head, const std::string& text, std::size_t column);

}  // namespace gpunbd::config
