// Text in lines of at most 80 columns, in a column of its own.
#pragma once

#include <cstddef>
#include <string>

namespace gpunbd::config {

// "head    text\n": the text begins in `column`, or behind a longer head, and goes on in `column`.
std::string wrapped(std::string head, const std::string& text, std::size_t column);

}  // namespace gpunbd::config
