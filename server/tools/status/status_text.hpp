// The text of `gpunbd status`.
#pragma once

#include <string>

#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {

// Lines, and tables of devices and exports.
std::string status_text(const Snapshot& status);
// "provisioning 'a': 42%, 3.4 GiB of 8 GiB"
std::string progress_text(const ProgressFigures& progress);
// Returns 0 for 0 of 0, and at most 100.
unsigned percent(std::uint64_t part, std::uint64_t whole);

}  // namespace gpunbd::status
