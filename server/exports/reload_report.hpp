// What a reload has changed, in words: a removed or replaced export takes its contents along, and
// some settings wait for the next start. Neither may go unsaid.
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

// One line for each export of either. To be called once `after` is offered: what is still held of
// `before` is held by clients.
std::vector<ReloadLine> report_exports(const ExportRegistry::Exports& before,
                                       const ExportRegistry::Exports& after);

// Keys of the file that differ from what is in effect and take effect only at the next start.
std::vector<std::string> keys_that_wait(const config::Options& running,
                                        const config::Options& loaded);

}  // namespace gpunbd::server
