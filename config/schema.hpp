// Every key of the configuration, once. What reads and writes YAML, the flags that set keys, the
// help, and the test of gpunbd.yaml(5) all go through this table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "config/yaml_reader.hpp"

namespace gpunbd::config {

// A key as people are told of it: "exports[].page_size", "Size", ", a power of two, 64K to 64M".
struct KeyText {
    std::string path;
    std::string type;
    std::string range;
    std::string fallback;  // "Default: 2M", "Must be given"; of a mapping: nothing
    std::vector<std::string_view> words = {};  // the possible values, if they can be listed
    std::string about = ".";                   // the rest of its entry in gpunbd.yaml(5), in mdoc
};
// In the order in which they are written.
const std::vector<KeyText>& all_keys();
const KeyText& key_text(std::string_view path);

Options read_options(Report& report, const YamlNode& root);

// Sets one value, in the last item where the path goes through a list, or adds one to the list
// where it ends. Returns what is wrong with the text, or nothing.
std::optional<std::string> set_key(std::string_view path, std::string_view text, Options& options);

}  // namespace gpunbd::config
