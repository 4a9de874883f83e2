// The lines that `gpunbd attach` prints while it runs: to standard error, or to the kernel's log.
// It never waits for a reader of these, since that reader may itself wait for the device.
#pragma once

#include <string_view>

namespace gpunbd::attach {

void say(std::string_view text);

// From now on lines go to the kernel's log (dmesg, the journal), where it can be opened.
void say_to_kernel_log();

}  // namespace gpunbd::attach
