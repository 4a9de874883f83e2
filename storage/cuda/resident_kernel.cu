#include "storage/cuda/resident_kernel.hpp"

#include "storage/cuda/copy_unit.cuh"

namespace gpunbd::storage::cuda {

namespace {

__device__ std::uint64_t now_ns() {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

__device__ std::uint32_t peek(const std::uint32_t* word) {
    return *static_cast<const volatile std::uint32_t*>(word);
}

__global__ void __launch_bounds__(copy_threads)
    serve(const Mailbox* mailbox, Outcome* outcome, ResidentState* state, std::uint32_t launch,
          std::uint64_t linger_ns, std::uint64_t lifetime_ns) {
    __shared__ std::uint32_t posted;
    __shared__ CopyUnit unit;
    std::uint32_t next = state->next[blockIdx.x];  // counts the rounds of this block
    const std::uint64_t begun = now_ns();
    std::uint64_t busy_at = begun;
    for (;;) {
        const std::uint32_t number = next * resident_blocks + blockIdx.x;
        if (threadIdx.x == 0) {
            for (;;) {
                const std::uint64_t now = now_ns();
                posted = number;  // in a steady stream of work, too, it ends in time
                if (now - begun > lifetime_ns) break;
                posted = peek(&mailbox->posted);
                if (static_cast<std::int32_t>(posted - number) > 0) break;
                if (now - busy_at > linger_ns) break;
            }
            if (static_cast<std::int32_t>(posted - number) > 0) {
                // The unit was made visible before the count; read it after the count.
                __threadfence_system();
                const volatile Mailbox::Place* place = &mailbox->places[number % mailbox_places];
                while (place->number != number + 1) {
                }
                unit.from = reinterpret_cast<const std::byte*>(place->from);
                unit.to = reinterpret_cast<std::byte*>(place->to);
                unit.length = place->length;
            }
        }
        __syncthreads();
        if (static_cast<std::int32_t>(posted - number) <= 0) break;
        copy_unit(unit);
        // The barrier orders the block's stores before its first thread, whose fence orders them
        // before the sign to the CPU.
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence_system();
            *static_cast<volatile std::uint32_t*>(&outcome->served[number % mailbox_places]) =
                number + 1;
            busy_at = now_ns();
        }
        ++next;
    }
    if (threadIdx.x != 0) return;
    state->next[blockIdx.x] = next;
    __threadfence_system();
    if (atomicInc(&state->blocks_ended, resident_blocks - 1) != resident_blocks - 1) return;
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(&outcome->ended) = launch;
}

}  // namespace

cudaError_t launch_resident_kernel(const Mailbox* mailbox, Outcome* outcome, ResidentState* state,
                                   std::uint32_t launch, std::uint64_t linger_ns,
                                   std::uint64_t lifetime_ns, cudaStream_t stream) noexcept {
    void* arguments[] = {&mailbox, &outcome, &state, &launch, &linger_ns, &lifetime_ns};
    return cudaLaunchKernel(reinterpret_cast<const void*>(serve), dim3(resident_blocks),
                            dim3(copy_threads), arguments, 0, stream);
}

}  // namespace gpunbd::storage::cuda
