// The table of all keys of the configuration. The YAML reader and writer, the flags that set keys,
// the help and gpunbd.yaml(5) use it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "config/yaml_reader.hpp"

namespace gpunbd::config {

// The description of a key: "exports[].page_size", "Size", ", a power of two, 64K to 64M".
struct KeyText {
    std::string path;
    std::string type;
    std::string range;
    std::string fallback;  // "Default: 2M" or "Must be given"; empty for a mapping
    std::vector<std::string_view> words = {};  // the possible values, if they can be listed
    std::string about = ".";                   // the rest of its entry in gpunbd.yaml(5), in mdoc
};
// In the order of the file.
const std::vector<KeyText>& all_keys();
const KeyText& key_text(std::string_view path);

Options read_options(Report& report, const YamlNode& root);
// One export: a mapping with the keys of an item of `exports`.
ExportOptions read_export(Report& report, const YamlNode& root);

// Sets one value. In a path through a list, the last item is meant; if the path names a list, an
// item is appended. Returns an error, if any.
std::optional<std::string> set_key(std::string_view path, std::string_view text, Options& options);

}  // namespace gpunbd::config
