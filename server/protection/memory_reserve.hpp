// The memory that the kernel should reserve (vm.min_free_kbytes) on a machine that swaps to its own
// server.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpunbd::server {

// 1/12 of the memory and at most 64 MiB. This was enough in tests with swap; small machines fail
// with 64 MiB. In KiB, as in /proc/meminfo and vm.min_free_kbytes.
constexpr std::uint64_t fit_reserve(std::uint64_t memory) {
    return std::min<std::uint64_t>(memory / 12, 65'536);
}

// True if the reserve leaves too little memory for everything else.
constexpr bool is_reserve_too_large(std::uint64_t reserve, std::uint64_t memory) {
    return reserve > memory / 5;
}

}  // namespace gpunbd::server
