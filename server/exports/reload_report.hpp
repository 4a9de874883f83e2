// Reports the effects of a reload: a removed or replaced export loses its contents, and some
// settings take effect only at the next start.
#pragma once

#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

struct ReloadLine {
    bool warning = false;
    std::string name;  // the export's
    std::string text;
};

enum class Unchanged { omit, report };

// One line per export of either list. Call once `after` is offered: only clients still hold
// references to `before`.
std::vector<ReloadLine> report_exports(const ExportRegistry::Exports& before,
                                       const ExportRegistry::Exports& after, Unchanged unchanged);

// Keys that differ from the settings in effect and take effect only at the next start.
std::vector<std::string> keys_that_wait(const config::Options& running,
                                        const config::Options& loaded);

}  // namespace gpunbd::server
