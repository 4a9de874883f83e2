// A status in which everything is there that can be there, and each number is another one.
#pragma once

#include <cstdint>

#include "server/admin/model/status.hpp"

namespace gpunbd::server::test {

// Of two exports ("scratch", and one whose name has all that has to be escaped) and two devices, of
// which one has failed. After `seconds` more: counters have grown by a known rate.
Status made_up_status(std::uint64_t seconds = 0);

// Bytes that "scratch" has read in each second.
inline constexpr std::uint64_t made_up_read_rate = 4'096'000;

}  // namespace gpunbd::server::test
