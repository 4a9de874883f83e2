// fork() copies the page tables of private memory and of mapped devices. Meanwhile, every thread
// that maps memory or takes a page fault is stopped: for 220 ms with 64 GiB of a GPU mapped.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace gpunbd::storage {

// Children of fork() do not inherit this memory. `memory` is aligned to a memory page. Has no
// effect if the system does not support it.
inline void exclude_from_forks(void* memory, std::size_t bytes) noexcept {
    ::madvise(memory, bytes, MADV_DONTFORK);
}

}  // namespace gpunbd::storage
