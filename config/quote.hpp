// Text from outside as it may stand in a message or in YAML: nothing a terminal or a log would
// obey.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::config {

// 'text', control characters escaped, clipped where it is long.
std::string in_quotes(std::string_view text);
// "text" as a double-quoted YAML scalar, whole.
std::string yaml_quoted(std::string_view text);
// The offset of the first byte that is not part of valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);
// Each byte that is not part of valid UTF-8 becomes U+FFFD.
std::string repaired_utf8(std::string_view text);

}  // namespace gpunbd::config
