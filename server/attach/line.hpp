// What `gpunbd attach` says while it stays: lines on standard error. It never waits for whoever
// reads them, who may himself wait for the device.
#pragma once

#include <string_view>

namespace gpunbd::attach {

void say(std::string_view text);

}  // namespace gpunbd::attach
