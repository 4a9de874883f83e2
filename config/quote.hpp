// Escapes untrusted text for messages and YAML, so that it cannot control a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::config {

// 'text', with control characters escaped; long texts are truncated.
std::string in_quotes(std::string_view text);
// "text" as a double-quoted YAML scalar, never truncated.
std::string yaml_quoted(std::string_view text);
// The text begins with one of U+0080 to U+009F in UTF-8. Many terminals interpret them like an
// escape sequence.
bool is_c1_control(std::string_view text);
// The offset of the first byte that is not part of valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);
// Replaces each byte that is not part of valid UTF-8 by U+FFFD.
std::string repaired_utf8(std::string_view text);

}  // namespace gpunbd::config
