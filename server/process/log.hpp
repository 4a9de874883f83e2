// The log: spdlog on standard error, as text or as one JSON object a line.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

#include "config/options.hpp"

namespace gpunbd::server {

void start_log(const config::LogOptions& options);

// One line of the log, with its end. JSON has the fields of a storage::LogLine as members and is
// valid whatever the bytes of the message; text has no control characters but the ends of lines.
std::unique_ptr<spdlog::formatter> log_formatter(config::LogFormat format);

}  // namespace gpunbd::server
