#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "config/quote.hpp"
#include "protocol/export_info.hpp"
#include "server/counters/activity_map.hpp"
#include "server/exports/access_list.hpp"
#include "server/exports/export_use.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

// What clients see of the options of an export.

// Without the size and the id of its contents.
protocol::ExportInfo info_of(const config::ExportOptions& options);

// An export: the name and properties that clients see of a volume. Sessions share it, so an export
// that was removed from the configuration lives until its last client has gone.
struct Export {
    protocol::ExportInfo info;
    config::ExportOptions options;
    std::shared_ptr<storage::Volume> volume;
    std::shared_ptr<ActivityMap> activity;  // of the volume
    AccessList access = {};
    // Shared with earlier exports of this name.
    std::shared_ptr<ExportUse> use = std::make_shared<ExportUse>();
    // Exports of the same volume before a reload, if clients still have them.
    std::vector<std::weak_ptr<const Export>> earlier = {};

    // Why nothing can be made of its contents now; empty: they are complete.
    std::string why_incomplete() const {
        if (volume->complete()) return {};
        return "export " + config::in_quotes(info.name) + " is being restored; try again later";
    }
    bool contents_outlive_server() const { return options.keep && volume->outlives_process(); }
};

}  // namespace gpunbd::server
