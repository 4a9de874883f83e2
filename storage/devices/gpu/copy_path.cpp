#include "storage/devices/gpu/copy_path.hpp"

#include <fmt/format.h>

#include "storage/assertions/assert.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

namespace {

const char* name_of(Copy::Kind kind) {
    switch (kind) {
        case Copy::Kind::read:
            return "read";
        case Copy::Kind::write:
            return "write";
        case Copy::Kind::zero:
            return "zeroing";
    }
    return "copy";
}

}  // namespace

std::string to_text(const Copy& copy) {
    return fmt::format("a {} of {} bytes at device address {:#x}", name_of(copy.kind), copy.length,
                       copy.address);
}

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
