// What clients see of the options of an export.
#pragma once

#include "config/options.hpp"
#include "protocol/export_info.hpp"

namespace gpunbd::server {

// Without the size and the id of its contents.
protocol::ExportInfo info_of(const config::ExportOptions& options);

}  // namespace gpunbd::server
