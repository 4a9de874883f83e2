// The flags of `gpunbd export create`: one for each key of an export, from the table of keys.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

// Values by key, in the order of the command line: "block_size.minimum", or "access[].network".
// Another item of a list begins with its first value or, for access, with "access[]".
using KeyValues = std::vector<std::pair<std::string, std::string>>;

// Flags that check their values and append them to `given`, which outlives them.
std::vector<config::Flag> export_key_flags(KeyValues& given);

// The values as a JSON object with the structure of an item of `exports`.
std::string export_json(const std::string& name, const KeyValues& given);

}  // namespace gpunbd::tools
