// `gpunbd devices`.
#pragma once

namespace gpunbd::server {

// Prints the host and every GPU to standard output. Returns the exit code.
int list_devices(bool calibrate);

}  // namespace gpunbd::server
