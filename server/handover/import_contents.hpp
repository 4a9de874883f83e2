// Imports the kept contents of a server that still serves them, ahead of an upgrade: the time that
// this takes is not a part of the pause that clients notice.
#pragma once

#include <vector>

#include "server/exports/device_registry.hpp"
#include "server/handover/retained_contents.hpp"

namespace gpunbd::server {

// Opens the devices that the tables among `parts` name. What cannot be imported is left out: to
// take the contents over then fails with the reason.
RetainedContents::Imported import_contents(std::vector<RetainedContents::Copy> parts,
                                           DeviceRegistry& devices);

}  // namespace gpunbd::server
