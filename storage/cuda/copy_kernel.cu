#include "storage/cuda/copy_kernel.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr unsigned threads = 256;

// Launch parameters are pushed to the device with the launch; descriptors in pinned memory would cost
// each block a round trip over the bus before its first load.
template <unsigned count>
struct Units {
    CopyUnit unit[count];
};

using Address = unsigned long long;

__device__ Address address_of(const std::byte* at) { return reinterpret_cast<Address>(at); }

// The loads go past the caches of the multiprocessor (ld.cv): others write the memory they read.
__device__ void copy_bytes(std::byte* to, const std::byte* from, unsigned length) {
    for (unsigned i = threadIdx.x; i < length; i += threads) {
        const unsigned char value =
            from == nullptr ? 0 : __ldcv(reinterpret_cast<const unsigned char*>(from + i));
        to[i] = static_cast<std::byte>(value);
    }
}

// `to` is aligned to 16 bytes, and so is `from` unless null. Returns how many bytes were copied.
__device__ unsigned copy_vectors(std::byte* to, const std::byte* from, unsigned length) {
    const auto* source = reinterpret_cast<const uint4*>(from);
    auto* target = reinterpret_cast<uint4*>(to);
    const unsigned count = length / sizeof(uint4);
    // Two loads in flight per thread: one turn of this loop is a whole unit.
    for (unsigned i = threadIdx.x; i < count; i += 2 * threads) {
        const unsigned j = i + threads;
        uint4 first = make_uint4(0, 0, 0, 0);
        uint4 second = first;
        if (from != nullptr) first = __ldcv(source + i);
        if (from != nullptr && j < count) second = __ldcv(source + j);
        target[i] = first;
        if (j < count) target[j] = second;
    }
    return count * static_cast<unsigned>(sizeof(uint4));
}

// `to` is aligned to 4 bytes, `from` to nothing: each word is put together from the two aligned words
// that hold its bytes. No other word is touched, so nothing outside the piece's own words is read.
__device__ unsigned copy_words(std::byte* to, const std::byte* from, unsigned length) {
    const unsigned shift = static_cast<unsigned>(address_of(from) & 3) * 8;
    const auto* source = reinterpret_cast<const unsigned*>(address_of(from) & ~Address{3});
    auto* target = reinterpret_cast<unsigned*>(to);
    const unsigned count = length / sizeof(unsigned);
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += threads) {
        const unsigned low = __ldcv(source + i);
        const unsigned high = shift == 0 ? 0 : __ldcv(source + i + 1);
        target[i] = __funnelshift_r(low, high, shift);
    }
    return count * static_cast<unsigned>(sizeof(unsigned));
}

__device__ void copy(const CopyUnit& unit) {
    const bool zero = unit.from == nullptr;
    const bool wide = zero || ((address_of(unit.from) ^ address_of(unit.to)) & 15) == 0;
    const unsigned alignment = wide ? 16 : 4;
    const unsigned ahead = static_cast<unsigned>(-address_of(unit.to) & (alignment - 1));
    const unsigned head = ahead < unit.length ? ahead : unit.length;
    const auto source = [&](unsigned at) { return zero ? nullptr : unit.from + at; };

    copy_bytes(unit.to, unit.from, head);
    const unsigned body =
        wide ? copy_vectors(unit.to + head, source(head), unit.length - head)
             : copy_words(unit.to + head, source(head), unit.length - head);
    const unsigned done = head + body;
    copy_bytes(unit.to + done, source(done), unit.length - done);
}

template <unsigned count>
__global__ void __launch_bounds__(threads)
    copy_units(const __grid_constant__ Units<count> units, unsigned* blocks_done,
               volatile unsigned* counter, unsigned number) {
    copy(units.unit[blockIdx.x]);
    // The barrier orders the block's stores before its first thread, whose fence orders them before
    // its sign to the last block; that block's own fence orders all of them before the number. To
    // the CPU, and to any later reader of the device memory, the number means that all bytes are there.
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    // Wraps to zero by itself for the stream's next launch.
    if (atomicInc(blocks_done, gridDim.x - 1) != gridDim.x - 1) return;
    __threadfence_system();
    *counter = number;
}

template <unsigned count>
cudaError_t launch(const CopyUnit* units, unsigned blocks, unsigned* blocks_done, unsigned* counter,
                   unsigned number, cudaStream_t stream) {
    void* arguments[] = {const_cast<CopyUnit*>(units), &blocks_done, &counter, &number};
    return cudaLaunchKernel(reinterpret_cast<const void*>(copy_units<count>), dim3(blocks),
                            dim3(threads), arguments, 0, stream);
}

}  // namespace

cudaError_t launch_copy_kernel(const CopyUnit* units, std::uint32_t count,
                               std::uint32_t* blocks_done, std::uint32_t* counter,
                               std::uint32_t number, cudaStream_t stream) noexcept {
    const auto launch_fitting =
        count <= 8 ? launch<8> : count <= 40 ? launch<40> : launch<max_copy_units>;
    return launch_fitting(units, count, blocks_done, counter, number, stream);
}

}  // namespace gpunbd::storage::cuda
