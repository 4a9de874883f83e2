#include "storage/devices/gpu/cpu_path.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "storage/store.hpp"

namespace gpunbd::storage {

namespace {

// Earlier streaming loads may have left lines of the mapping in the CPU's fill buffers: none of
// them may serve a load from here on.
void forget_loaded_lines() {
#if defined(__x86_64__)
    _mm_mfence();
#else
    store_fence();
#endif
}

}  // namespace

bool CpuPath::add(Copy& copy) {
    switch (copy.kind) {
        case Copy::Kind::read:
            forget_loaded_lines();
            load_streaming(copy.staging, copy.cpu, copy.length);
            break;
        case Copy::Kind::write:
            store_streaming(copy.cpu, copy.staging, copy.length);
            store_fence();
            break;
        case Copy::Kind::zero:
            std::memset(copy.cpu, 0, copy.length);
            store_fence();
            break;
    }
    return true;
}

}  // namespace gpunbd::storage
