// A server's status as Prometheus and OpenMetrics have it. The names are listed in
// server/OPERATION.md: alerts of others depend on them.
#pragma once

#include <string>

#include "server/admin/status.hpp"

namespace gpunbd::server {

// `openmetrics`: in the form of OpenMetrics 1.0, else in Prometheus's text format 0.0.4.
std::string metrics_text(const Status& status, bool openmetrics);

}  // namespace gpunbd::server
