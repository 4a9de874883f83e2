// How much memory the kernel should hold in reserve (vm.min_free_kbytes) on a machine that swaps to
// its own server.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpunbd::server {

// 1/12 of the memory, and at most 64 MiB: enough for what swap was tried with, and little enough
// for small machines, which fail with 64 MiB. In KiB, as are /proc/meminfo and the setting.
constexpr std::uint64_t fit_reserve(std::uint64_t memory) {
    return std::min<std::uint64_t>(memory / 12, 65'536);
}

// So much that too little is left to the rest.
constexpr bool is_reserve_too_large(std::uint64_t reserve, std::uint64_t memory) {
    return reserve > memory / 5;
}

}  // namespace gpunbd::server
