// Loads a YAML configuration file. The result has either valid options or all problems.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

struct Loaded {
    Options options;                // valid only if `problems` is empty
    std::vector<Problem> problems;  // in the order of the file
};

Loaded load_file(const std::string& path);
// Prints all problems to standard error and returns nothing if there are any.
std::optional<Options> load_or_report(const std::string& path);
Loaded load_text(const std::string& text, const std::string& name);

// One export, as an item of `exports` without a list.
struct LoadedExport {
    ExportOptions options;          // valid only if `problems` is empty
    std::vector<Problem> problems;  // in the order of the file
};
LoadedExport load_export_file(const std::string& path);
LoadedExport load_export_text(const std::string& text, const std::string& name);

// The effective configuration as YAML. load_text() of it returns equal options.
std::string to_yaml(const Options& options);
// Likewise of one export, for load_export_text().
std::string to_yaml(const ExportOptions& options);

}  // namespace gpunbd::config
