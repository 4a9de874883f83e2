// What is said about text that is not YAML: the parser's words, and what to do.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::config {

std::string about_syntax(const std::string& message_of_parser);

// The column, from 0, of a tab that indents. The parser finds it later than it stands, or calls it
// something else.
std::optional<std::size_t> indenting_tab(std::string_view line);

}  // namespace gpunbd::config
