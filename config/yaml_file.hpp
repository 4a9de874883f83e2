// A YAML configuration file, read whole: either options without a flaw, or every problem it has.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

struct Loaded {
    Options options;                // meaningful only where `problems` is empty
    std::vector<Problem> problems;  // in the order of the file
};

Loaded load_file(const std::string& path);
// Nothing if the file has a problem; all problems go to standard error then.
std::optional<Options> load_or_report(const std::string& path);
Loaded load_text(const std::string& text, const std::string& name);

// The effective configuration as YAML that load_text() takes and that gives equal options.
std::string to_yaml(const Options& options);

}  // namespace gpunbd::config
