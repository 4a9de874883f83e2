// How the CPU accesses pages that it can address, in host or device memory, and staging memory.
#pragma once

#include <cstddef>

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <atomic>
#endif

namespace gpunbd::storage {

// Copies with wide non-temporal stores, in order: into write-combined mappings, and into host
// memory that is larger than the caches. Visible to the device and to other threads after a store
// fence. A locked instruction is a fence too, so a page is unpinned after the stores into it.
void store_streaming(std::byte* to, const std::byte* from, std::size_t length);
// The same for zeroes.
void zero_streaming(std::byte* to, std::size_t length);
// Copies out of a write-combined mapping with streaming loads (x86: SSE 4.1), many times faster
// than memcpy.
void load_streaming(std::byte* to, const std::byte* from, std::size_t length);
// When it returns, stores of this thread into pages are visible to their devices and to other
// threads.
inline void store_fence() {
#if defined(__x86_64__)
    _mm_sfence();
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Streaming loads may have left lines of the mapping in the CPU's fill buffers. No later load is
// served from them.
void drop_loaded_lines();

// Moves memory that this CPU has just written to the shared cache, where a device reads it faster
// (x86: CLDEMOTE). A hint: it has no effect on CPUs without it.
void demote(const std::byte* memory, std::size_t length);

}  // namespace gpunbd::storage
