// A time as text, for the log and for tables.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::config {

// "2026-11-22 09:12:44", from seconds since 1970; "-" if the time is out of range.
std::string local_time_text(std::int64_t seconds);

}  // namespace gpunbd::config
