#include "storage/devices/cuda/persistent_kernel.hpp"

#include "storage/devices/cuda/copy_unit.cuh"

namespace gpunbd::storage::cuda {

namespace {

static_assert(copy_threads == persistent_block_threads);

__device__ std::uint64_t now_ns() {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

__device__ std::uint32_t peek(const std::uint32_t* word) {
    return *static_cast<const volatile std::uint32_t*>(word);
}

// Decides when the kernel ends, for all blocks. If each block decided for itself, an idle block
// would end while others continue, and its next unit would wait for them.
class Leader {
 public:
    __device__ Leader(std::uint64_t linger_ns, std::uint64_t lifetime_ns)
        : linger_ns_(linger_ns), lifetime_ns_(lifetime_ns), begun_(now_ns()), busy_at_(begun_) {}

    __device__ bool is_over(std::uint32_t posted) {
        const std::uint64_t now = now_ns();
        if (posted != seen_) busy_at_ = now;
        seen_ = posted;
        return now - busy_at_ > linger_ns_ || now - begun_ > lifetime_ns_;
    }

 private:
    std::uint64_t linger_ns_;
    std::uint64_t lifetime_ns_;
    std::uint64_t begun_;
    std::uint64_t busy_at_;
    std::uint32_t seen_ = 0;
};

// Waits until unit `number` is posted. False: the kernel is to end.
__device__ bool await(std::uint32_t number, const Mailbox* mailbox, PersistentKernelState* state,
                      std::uint32_t launch, Leader& leader) {
    for (;;) {
        const std::uint32_t posted = peek(&mailbox->posted);
        const std::uint32_t leave = peek(&state->leave);
        if (leave == launch) return false;
        if (blockIdx.x == 0 && leader.is_over(posted)) {
            *static_cast<volatile std::uint32_t*>(&state->leave) = launch;
            return false;
        }
        if (static_cast<std::int32_t>(posted - number) > 0) return true;
    }
}

// The unit became visible before the count.
__device__ CopyUnit unit_at(const Mailbox* mailbox, std::uint32_t number) {
    __threadfence_system();
    const volatile Mailbox::Slot* slot = &mailbox->slots[number % mailbox_slots];
    while (slot->number != number + 1) {
    }
    return {.from = reinterpret_cast<const std::byte*>(slot->from),
            .to = reinterpret_cast<std::byte*>(slot->to),
            .length = slot->length};
}

__global__ void __launch_bounds__(copy_threads)
    serve(const Mailbox* mailbox, Outcome* outcome, PersistentKernelState* state,
          std::uint32_t launch, std::uint64_t linger_ns, std::uint64_t lifetime_ns) {
    __shared__ bool posted;
    __shared__ CopyUnit unit;
    std::uint32_t next = state->next[blockIdx.x];  // counts the iterations of this block
    Leader leader(linger_ns, lifetime_ns);
    for (;; ++next) {
        const std::uint32_t number = next * gridDim.x + blockIdx.x;
        if (threadIdx.x == 0) {
            posted = await(number, mailbox, state, launch, leader);
            if (posted) unit = unit_at(mailbox, number);
        }
        __syncthreads();
        if (!posted) break;
        copy_unit(unit);
        // The barrier orders the block's stores before its first thread. The fence of that thread
        // orders them before the signal to the CPU.
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence_system();
            *static_cast<volatile std::uint32_t*>(&outcome->served[number % mailbox_slots]) =
                number + 1;
        }
    }
    if (threadIdx.x != 0) return;
    state->next[blockIdx.x] = next;
    __threadfence_system();
    if (atomicInc(&state->blocks_ended, gridDim.x - 1) != gridDim.x - 1) return;
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(&outcome->ended) = launch;
}

}  // namespace

cudaError_t launch_persistent_kernel(const Mailbox* mailbox, Outcome* outcome,
                                     PersistentKernelState* state, std::uint32_t blocks,
                                     std::uint32_t launch, std::uint64_t linger_ns,
                                     std::uint64_t lifetime_ns, cudaStream_t stream) noexcept {
    void* arguments[] = {&mailbox, &outcome, &state, &launch, &linger_ns, &lifetime_ns};
    return cudaLaunchKernel(reinterpret_cast<const void*>(serve), dim3(blocks), dim3(copy_threads),
                            arguments, 0, stream);
}

}  // namespace gpunbd::storage::cuda
