// A kernel that lingers: it polls a mailbox for copies and serves them without a launch, as long as
// they keep coming, and ends soon after they stop. One channel's own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpunbd::storage::cuda {

// Blocks serve units side by side. More of them serve one channel faster (measured on one H200, 32
// reads of 4 KiB at once: 12.7 us with 8 blocks, 8.6 with 16, 7.6 with 32), but what clients see is
// better with few, which come back one by one and are sent meanwhile (server/PERFORMANCE.md).
constexpr std::uint32_t max_persistent_blocks = 8;  // a power of two
constexpr int persistent_block_threads = 256;
constexpr std::uint32_t mailbox_places = 256;  // a power of two, at least max_persistent_blocks

// Written by the CPU alone, read by the GPU alone. The CPU makes `posted` visible after the units
// that it counts.
struct Mailbox {
    struct Place {  // 32 bytes, so that the CPU stores one with two wide stores
        std::uint64_t from;
        std::uint64_t to;
        std::uint32_t length;
        std::uint32_t unused[2];
        std::uint32_t number;  // n + 1: the place is written whole, and this is its end
    };
    Place places[mailbox_places];       // unit n lies in place n % mailbox_places
    alignas(128) std::uint32_t posted;  // units, ever growing; wraps around
};

// Written by the GPU alone, in pinned host memory.
struct Outcome {
    std::uint32_t served[mailbox_places];  // n + 1 once unit n has been copied
    alignas(64) std::uint32_t ended;       // the number of the last launch that is over
};

// In device memory, zero at first: what one launch leaves to the next.
struct PersistentKernelState {
    std::uint32_t next[max_persistent_blocks];  // block b serves the units n with n % blocks == b
    std::uint32_t blocks_ended;
    std::uint32_t leave;  // the number of the launch whose blocks are to end: the first one decides
};

// Launch number `launch` (> 0, ever growing) of `blocks` blocks (a power of two, always the same)
// on a stream of its own. It ends by itself when nothing has been posted for `linger_ns`, and after
// `lifetime_ns` in any case: calls that wait for the whole device, cudaFree() for one, must get
// their turn. It may end with units unserved, which the next launch serves.
cudaError_t launch_persistent_kernel(const Mailbox* mailbox, Outcome* outcome,
                                     PersistentKernelState* state, std::uint32_t blocks,
                                     std::uint32_t launch, std::uint64_t linger_ns,
                                     std::uint64_t lifetime_ns, cudaStream_t stream) noexcept;

}  // namespace gpunbd::storage::cuda
