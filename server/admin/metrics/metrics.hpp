// What a server tells, as Prometheus reads it.
#pragma once

#include <string>

#include "server/admin/status.hpp"

namespace gpunbd::server {

// In Prometheus' text format 0.0.4, or as OpenMetrics 1.0.0.
std::string metrics_text(const Status& status, bool openmetrics);

}  // namespace gpunbd::server
