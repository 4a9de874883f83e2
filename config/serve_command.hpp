// The parsed command line of `gpunbd serve`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

// Values of flags that take precedence over the configuration file.
struct Overrides {
    std::vector<std::pair<std::string, std::string>> values;  // by key, already validated

    // Also raises `pinned` to the minimum for the chunk size. Call after each load of the file.
    void apply_to(Options& options) const;
};

struct ServeCommand {
    std::optional<std::string> config_file;  // --config; `options` then has no exports
    Options options;                         // from the other flags, `overrides` applied
    Overrides overrides;                     // for the options from `config_file`
    std::optional<std::string> run;          // --run COMMAND; opens no listeners
    bool exit_with_parent = false;
    bool background = false;  // return once clients can connect
    bool core_dumps = false;
    std::optional<std::string> pidfile;
};

}  // namespace gpunbd::config
