// Messages about invalid YAML: the error of the parser, and a remedy.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::config {

std::string about_syntax(const std::string& message_of_parser);

// The column, from 0, of a tab in the indentation. The parser reports tabs at a later position, or
// as another error.
std::optional<std::size_t> indenting_tab(std::string_view line);

}  // namespace gpunbd::config
