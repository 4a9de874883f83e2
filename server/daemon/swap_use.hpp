// Which of this machine's swap lies on a server's exports: while any does, it may not end.
#pragma once

#include <string>
#include <vector>

#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

// The devices, as far as can be told: the kernel does not say whose they are. So one counts that is
// as large as an export with swap that has a client; or has its instance, where its client has told
// the kernel any. `root`: where /proc and /sys are, for tests.
std::vector<std::string> swapped_to(const ExportRegistry::Exports& exports,
                                    const std::string& root = "");

}  // namespace gpunbd::server
