// `gpunbd devices`.
#pragma once

namespace gpunbd::server {

// Prints the host, every GPU and the ublk devices to standard output, as text or as an object.
// Returns the exit code.
int list_devices(bool calibrate, bool as_json);

}  // namespace gpunbd::server
