// Tells the configuration which device drivers this program has.
#pragma once

namespace gpunbd::server {

// To be called once, before a configuration or a command line is parsed.
void register_device_drivers();

}  // namespace gpunbd::server
