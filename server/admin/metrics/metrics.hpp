#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/admin/model/status.hpp"

namespace gpunbd::server {

// The list of metrics, for gpunbd(8).
struct MetricText {
    std::string name;  // with its suffix: "gpunbd_handshakes_total"
    std::vector<std::string_view> labels;
    std::string_view help;
};

// All metrics that a server can expose.
std::vector<MetricText> all_metrics();

// The metrics of a server's status.

// `openmetrics`: in OpenMetrics 1.0, else in Prometheus's text format 0.0.4.
std::string metrics_text(const Status& status, bool openmetrics);

}  // namespace gpunbd::server
