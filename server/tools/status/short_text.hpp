// Formats numbers in at most five columns, for tables on a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::status {

std::string short_size(double bytes);        // "512", "1.5K", "1023M": binary
std::string short_count(double count);       // "999", "1.5k", "12.3M": decimal
std::string short_duration(double seconds);  // "850us", "1.2ms", "12.0s"; "-": 0
std::string short_age(double seconds);       // "59s", "12m34", "23h59", "365d"

}  // namespace gpunbd::status
