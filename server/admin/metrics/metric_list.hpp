// The list of metrics, for gpunbd(8).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::server {

struct MetricText {
    std::string name;  // with its suffix: "gpunbd_handshakes_total"
    std::vector<std::string_view> labels;
    std::string_view help;
};

// All metrics that a server can expose.
std::vector<MetricText> all_metrics();

}  // namespace gpunbd::server
