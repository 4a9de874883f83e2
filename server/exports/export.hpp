// An export: what a client names and sees, over a volume. Sessions share it, so that one that was
// removed from the configuration lives until its last client has gone.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "config/options.hpp"
#include "protocol/export_info.hpp"
#include "server/access/access_list.hpp"
#include "server/access/export_use.hpp"
#include "server/counters/activity_map.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

struct Export {
    protocol::ExportInfo info;
    config::ExportOptions options;
    std::shared_ptr<storage::Volume> volume;
    std::shared_ptr<ActivityMap> activity;  // of the volume
    AccessList access = {};
    // Of all that had this name, one after the other.
    std::shared_ptr<ExportUse> use = std::make_shared<ExportUse>();
    // What this volume was offered as before a reload, where clients may still hold that.
    std::vector<std::weak_ptr<const Export>> earlier = {};

    bool contents_outlive_server() const { return options.keep && volume->table_descriptor() >= 0; }
};

}  // namespace gpunbd::server
