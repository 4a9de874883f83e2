// When contents were made, for people: in the log, and in what `gpunbd kept` prints.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::server {

// "2026-11-22 09:12:44", from seconds since 1970; "-" where they are no time.
std::string local_time_text(std::int64_t seconds);

}  // namespace gpunbd::server
