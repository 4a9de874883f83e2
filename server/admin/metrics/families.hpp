// The parts of which metrics_text() consists, each with all families of one kind of thing.
#pragma once

#include "server/admin/metrics/exposition.hpp"
#include "server/admin/status.hpp"

namespace gpunbd::server {

void add_process_metrics(Exposition& out, const Status& status);
void add_connection_metrics(Exposition& out, const Status& status);
void add_device_metrics(Exposition& out, const Status& status);
void add_export_metrics(Exposition& out, const Status& status);

}  // namespace gpunbd::server
