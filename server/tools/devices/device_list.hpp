// `gpunbd devices`.
#pragma once

namespace gpunbd::server {

// Prints the host, every GPU and the ublk devices to standard output. Returns the exit code.
int list_devices(bool calibrate);

}  // namespace gpunbd::server
