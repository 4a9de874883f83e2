#include "server/admin/metrics/metrics.hpp"

#include <fmt/format.h>

namespace gpunbd::server {

std::string metrics_text(const Status& status, bool openmetrics) {
    return fmt::format(
        "# HELP gpunbd_exports Exports that are offered.\n# TYPE gpunbd_exports gauge\n"
        "gpunbd_exports {}\n{}",
        status.exports.size(), openmetrics ? "# EOF\n" : "");
}

}  // namespace gpunbd::server
