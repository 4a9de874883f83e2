// The metrics of a server's status.
#pragma once

#include <string>

#include "server/admin/model/status.hpp"

namespace gpunbd::server {

// `openmetrics`: in OpenMetrics 1.0, else in Prometheus's text format 0.0.4.
std::string metrics_text(const Status& status, bool openmetrics);

}  // namespace gpunbd::server
