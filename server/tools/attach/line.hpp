// Log lines of `gpunbd attach`, to standard error or the kernel log. Writing never blocks, because
// the reader may itself wait for the device.
#pragma once

#include <string_view>

namespace gpunbd::attach {

void log(std::string_view text);

// Sends later lines to the kernel log (dmesg, the journal), if it can be opened.
void say_to_kernel_log();

}  // namespace gpunbd::attach
