#include "server/protection/heap.hpp"

#include <malloc.h>

#include <climits>
#include <cstddef>
#include <memory>

namespace gpunbd::server {

namespace {

// The maximum of glibc. Larger blocks have their own mappings, which are unmapped when freed.
constexpr int largest_in_heap = 32 << 20;  // bytes
// For the buffers of a few busy clients and the descriptions of their requests.
constexpr std::size_t room = 4 << 20;  // bytes

}  // namespace

void never_shrink_heap() {
    ::mallopt(M_MMAP_THRESHOLD, largest_in_heap);
    ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

void grow_heap() {
    const auto taken = std::make_unique_for_overwrite<volatile char[]>(room);
    taken[0] = 0;  // prevents the compiler from removing the allocation
}

}  // namespace gpunbd::server
