// Configurations that tests load, and problems as one text.
#pragma once

#include "config/yaml_file.hpp"
#include "tests/test.hpp"

namespace gpunbd::config {

inline std::string joined(const std::vector<Problem>& problems) {
    std::string out;
    for (const Problem& problem : problems) out += problem.text() + "\n";
    return out;
}

// The options of a valid configuration.
inline Options options_of(const std::string& text) {
    Loaded loaded = load_text(text, "f");
    REQUIRE(joined(loaded.problems) == "");
    return std::move(loaded.options);
}

// What to_yaml() writes is read as the same options.
inline void check_written(const Options& options) {
    CHECK(options_of(to_yaml(options)) == options);
}

}  // namespace gpunbd::config
