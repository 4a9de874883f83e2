// Imports the kept contents of a server that still serves, ahead of an upgrade. This shortens the
// pause of the clients.
#pragma once

#include <vector>

#include "server/exports/device_registry.hpp"
#include "server/handover/retained_contents.hpp"

namespace gpunbd::server {

// Opens the devices that the tables in `parts` name. Parts that cannot be imported are omitted;
// taking over those contents then fails with the reason.
RetainedContents::Imported import_contents(std::vector<RetainedContents::Copy> parts,
                                           DeviceRegistry& devices);

}  // namespace gpunbd::server
