#include "server/admin/metrics/metrics.hpp"

#include <utility>

#include "server/admin/metrics/families.hpp"

namespace gpunbd::server {

std::string metrics_text(const Status& status, bool openmetrics) {
    Exposition out(openmetrics);
    add_process_metrics(out, status);
    add_connection_metrics(out, status);
    add_device_metrics(out, status);
    add_export_metrics(out, status);
    return std::move(out).text();
}

}  // namespace gpunbd::server
