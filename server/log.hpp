// The log: spdlog on standard error, as text or as one JSON object a line.
#pragma once

#include "config/options.hpp"

namespace gpunbd::server {

void start_log(const config::LogOptions& options);

}  // namespace gpunbd::server
