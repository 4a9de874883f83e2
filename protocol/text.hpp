// Strings on the wire: validation ("Conventions"), and a form for the log in which a client cannot
// forge lines.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::protocol {

// At most max_string bytes of well-formed UTF-8 without NUL.
bool valid_string(std::string_view text);

// Quotes, truncates and replaces everything but printable ASCII.
std::string for_log(std::string_view text);

}  // namespace gpunbd::protocol
