// A status in which every member is set, and all numbers differ.
#pragma once

#include <cstdint>

#include "server/admin/model/status.hpp"

namespace gpunbd::server::test {

// A server with two exports ("scratch", and one whose name has all characters that must be escaped)
// and two devices, one of them failed. Counters have grown for `seconds` at a known rate.
Status sample_status(std::uint64_t seconds = 0);

// Bytes read per second from "scratch".
inline constexpr std::uint64_t sample_read_rate = 4'096'000;

}  // namespace gpunbd::server::test
