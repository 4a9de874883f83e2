// Registers the device drivers of this program with the configuration.
#pragma once

namespace gpunbd::server {

// Call it once, before a configuration or a command line is parsed.
void register_device_drivers();

}  // namespace gpunbd::server
