// What keeps this process going while memory is short: the device that it keeps alive may be where
// the memory comes from.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::attach {

// Locks all memory, now and later, asks never to be killed for want of memory, and never to wait
// for the writing of other data. What could not be had, each with its remedy.
std::vector<std::string> protect_process();

}  // namespace gpunbd::attach
