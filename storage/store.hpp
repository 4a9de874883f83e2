// What the CPU does with pages that it addresses, in its own memory or in a device's, and with
// staging memory.
#pragma once

#include <cstddef>

namespace gpunbd::storage {

// Copies with wide non-temporal stores, in order: into a mapping, which is write-combined, and into
// host memory of which more is written than the caches hold. Visible to the device, and to other
// threads, after a store fence; a locked instruction is one too, so that a page is unpinned behind
// what was streamed into it.
void store_streaming(std::byte* to, const std::byte* from, std::size_t length);
// Zeroes likewise.
void zero_streaming(std::byte* to, std::size_t length);
// Copies out of a write-combined mapping with streaming loads, many times faster than memcpy there,
// where the CPU has them (x86: SSE 4.1).
void load_streaming(std::byte* to, const std::byte* from, std::size_t length);
// After this returns, what this thread has stored into pages is visible to their devices and to
// other threads.
void store_fence();

// Streaming loads may have left lines of the mapping in the CPU's fill buffers: none of them serves
// a load after this.
void forget_loaded_lines();

// Hands memory that this CPU has just filled to the caches that all share, where a device's reads
// find it sooner than in the CPU's own. A hint: it changes no byte, and where the CPU has no such
// instruction (x86: CLDEMOTE) it does nothing.
void demote(const std::byte* memory, std::size_t length);

}  // namespace gpunbd::storage
