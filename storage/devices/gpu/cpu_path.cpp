#include "storage/devices/gpu/cpu_path.hpp"

#include "storage/assertions/assert.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

bool CpuPath::add(Copy& copy) {
    GPUNBD_ASSERT(copy.cpu != nullptr, "the CPU copies only what is mapped");
    switch (copy.kind) {
        case Copy::Kind::read:
            drop_loaded_lines();
            load_streaming(copy.staging, copy.cpu, copy.length);
            break;
        case Copy::Kind::write:
            store_streaming(copy.cpu, copy.staging, copy.length);
            store_fence();
            break;
        case Copy::Kind::zero:
            zero_streaming(copy.cpu, copy.length);
            store_fence();
            break;
    }
    return true;
}

}  // namespace gpunbd::storage
