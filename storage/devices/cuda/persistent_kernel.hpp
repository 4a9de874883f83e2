// A persistent kernel of one channel. It polls a mailbox for copies and serves them without a
// launch while they keep coming, and ends soon after they stop.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpunbd::storage::cuda {

// Blocks serve units in parallel. More blocks serve one channel faster (measured on one H200, 32
// reads of 4 KiB at once: 12.7 us with 8 blocks, 8.6 with 16, 7.6 with 32). Clients are served
// better with few blocks, whose replies arrive one by one and are sent meanwhile
// (server/PERFORMANCE.md).
constexpr std::uint32_t max_persistent_blocks = 8;  // a power of two
constexpr int persistent_block_threads = 256;
constexpr std::uint32_t mailbox_slots = 256;  // a power of two, at least max_persistent_blocks

// Written only by the CPU, read only by the GPU. The CPU makes `posted` visible after the units
// that it counts.
struct Mailbox {
    struct Slot {  // 32 bytes, so that the CPU stores one with two wide stores
        std::uint64_t from;
        std::uint64_t to;
        std::uint32_t length;
        std::uint32_t unused[2];
        std::uint32_t number;  // n + 1 for unit n; written last
    };
    Slot slots[mailbox_slots];          // unit n is at n % mailbox_slots
    alignas(128) std::uint32_t posted;  // the number of units, monotonic; wraps around
};

// Written only by the GPU, in pinned host memory.
struct Outcome {
    std::uint32_t served[mailbox_slots];  // n + 1 once unit n has been copied
    alignas(64) std::uint32_t ended;      // the number of the last launch that has ended
};

// In device memory, initially zero: carries state from one launch to the next.
struct PersistentKernelState {
    std::uint32_t next[max_persistent_blocks];  // block b serves units n with n % blocks == b
    std::uint32_t blocks_ended;
    std::uint32_t leave;  // the number of the launch that is to end; set by the first block
};

// Starts launch number `launch` (> 0, monotonic) of `blocks` blocks (a power of two, always the
// same) on a stream of its own. The kernel ends when nothing has been posted for `linger_ns`, and
// always after `lifetime_ns`, so that calls that wait for the whole device, such as cudaFree(), can
// proceed. It may end with units unserved, which the next launch serves.
cudaError_t launch_persistent_kernel(const Mailbox* mailbox, Outcome* outcome,
                                     PersistentKernelState* state, std::uint32_t blocks,
                                     std::uint32_t launch, std::uint64_t linger_ns,
                                     std::uint64_t lifetime_ns, cudaStream_t stream) noexcept;

}  // namespace gpunbd::storage::cuda
