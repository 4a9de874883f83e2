// Strings off the wire: what the specification allows in one ("Conventions"), and how one that a
// client chose is shown in a log without letting it forge lines there.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::protocol {

// At most max_string bytes of well-formed UTF-8 without NUL.
bool valid_string(std::string_view text);

// Quoted, cut to a length fit for a log line, anything but printable ASCII replaced.
std::string for_log(std::string_view text);

}  // namespace gpunbd::protocol
