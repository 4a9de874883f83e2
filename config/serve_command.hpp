// What `gpunbd serve` was asked to do.
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
    std::vector<std::pair<std::string_view, std::string>> values;  // by key, already checked

    // Also raises `pinned` to what the chunks need. To be called after each load of the file.
    void apply_to(Options& options) const;
};

struct ServeCommand {
    std::optional<std::string> config_file;  // --config: then `options` holds no exports
    Options options;                         // from the other flags, `overrides` applied
    Overrides overrides;                     // for what is loaded from `config_file`
    std::optional<std::string> run;          // --run COMMAND: then no listener is opened
    bool exit_with_parent = false;
    bool background = false;  // return once clients can connect
    bool core_dumps = false;
    std::optional<std::string> pidfile;
};

}  // namespace gpunbd::config
