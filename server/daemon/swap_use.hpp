// Finds the swap devices that use exports of this server. The server must not end while there are
// any.
#pragma once

#include <string>
#include <vector>

#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

// The kernel does not report the server of a device. A device matches an export with swap if it has
// the export's instance, as passed by its client; without an instance, if it has the same size and
// the export has a client. `root` replaces / in tests.
std::vector<std::string> swapped_to(const ExportRegistry::Exports& exports,
                                    const std::string& root = "");

}  // namespace gpunbd::server
