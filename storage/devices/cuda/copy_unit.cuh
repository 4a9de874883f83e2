// How one block of threads copies one unit of any alignment: 16 bytes per thread if both ends are
// equally aligned.
#pragma once

#include "storage/devices/gpu/copy_unit.hpp"

namespace gpunbd::storage::cuda {

constexpr unsigned copy_threads = 256;  // per block

using Address = unsigned long long;

__device__ inline Address address_of(const std::byte* at) { return reinterpret_cast<Address>(at); }

// Loads bypass the caches of the multiprocessor (ld.cv), since other processors write this memory.
__device__ inline void copy_bytes(std::byte* to, const std::byte* from, unsigned length) {
    for (unsigned i = threadIdx.x; i < length; i += copy_threads) {
        const unsigned char value =
            from == nullptr ? 0 : __ldcv(reinterpret_cast<const unsigned char*>(from + i));
        to[i] = static_cast<std::byte>(value);
    }
}

// `to` is aligned to 16 bytes, and so is `from` unless it is null. Returns the number of bytes
// copied.
__device__ inline unsigned copy_vectors(std::byte* to, const std::byte* from, unsigned length) {
    const auto* source = reinterpret_cast<const uint4*>(from);
    auto* target = reinterpret_cast<uint4*>(to);
    const unsigned count = length / sizeof(uint4);
    // Two loads in flight per thread: one iteration copies a whole unit.
    for (unsigned i = threadIdx.x; i < count; i += 2 * copy_threads) {
        const unsigned j = i + copy_threads;
        uint4 first = make_uint4(0, 0, 0, 0);
        uint4 second = first;
        if (from != nullptr) first = __ldcv(source + i);
        if (from != nullptr && j < count) second = __ldcv(source + j);
        target[i] = first;
        if (j < count) target[j] = second;
    }
    return count * static_cast<unsigned>(sizeof(uint4));
}

// `to` is aligned to 4 bytes, `from` may have any alignment: each word is built from the two
// aligned words that contain its bytes. No other word is read.
__device__ inline unsigned copy_words(std::byte* to, const std::byte* from, unsigned length) {
    const unsigned shift = static_cast<unsigned>(address_of(from) & 3) * 8;
    const auto* source = reinterpret_cast<const unsigned*>(address_of(from) & ~Address{3});
    auto* target = reinterpret_cast<unsigned*>(to);
    const unsigned count = length / sizeof(unsigned);
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += copy_threads) {
        const unsigned low = __ldcv(source + i);
        const unsigned high = shift == 0 ? 0 : __ldcv(source + i + 1);
        target[i] = __funnelshift_r(low, high, shift);
    }
    return count * static_cast<unsigned>(sizeof(unsigned));
}

__device__ inline void copy_unit(const CopyUnit& unit) {
    const bool zero = unit.from == nullptr;
    const bool wide = zero || ((address_of(unit.from) ^ address_of(unit.to)) & 15) == 0;
    const unsigned alignment = wide ? 16 : 4;
    const unsigned ahead = static_cast<unsigned>(-address_of(unit.to) & (alignment - 1));
    const unsigned head = ahead < unit.length ? ahead : unit.length;
    const auto source = [&](unsigned at) { return zero ? nullptr : unit.from + at; };

    copy_bytes(unit.to, unit.from, head);
    const unsigned body = wide ? copy_vectors(unit.to + head, source(head), unit.length - head)
                               : copy_words(unit.to + head, source(head), unit.length - head);
    const unsigned done = head + body;
    copy_bytes(unit.to + done, source(done), unit.length - done);
}

}  // namespace gpunbd::storage::cuda
