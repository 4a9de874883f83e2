#include "server/protection/heap.hpp"

#include <malloc.h>

#include <climits>
#include <cstddef>
#include <memory>

namespace gpunbd::server {

namespace {

// The most that glibc takes: what is larger has a mapping of its own, which goes with it.
constexpr int largest_in_heap = 32 << 20;  // bytes
// Buffers of a few busy clients, and descriptions of all that they may ask for at once.
constexpr std::size_t room = 4 << 20;  // bytes

}  // namespace

void never_shrink_heap() {
    ::mallopt(M_MMAP_THRESHOLD, largest_in_heap);
    ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

void grow_heap() {
    const auto taken = std::make_unique_for_overwrite<volatile char[]>(room);
    taken[0] = 0;  // or it would not be asked for at all
}

}  // namespace gpunbd::server
