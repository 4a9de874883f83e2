// The ways that bytes take between staging memory and a device's memory: what a row of a policy
// names, and what is counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpunbd::storage {

enum class PathKind : std::uint8_t {
    mapping,            // the CPU stores into the mapping
    streaming_load,     // the CPU loads out of the mapping
    copy_engine,        // an asynchronous copy (for zeroes: an asynchronous memset)
    engine_batch,       // one call of the copy engines together with all others that wait
    persistent_kernel,  // a kernel that lingers serves it from a mailbox, without a call
    kernel,             // one gather/scatter kernel together with all others that wait
};
inline constexpr std::size_t path_kinds = 6;

constexpr const char* to_text(PathKind path) {
    switch (path) {
        case PathKind::mapping:
            return "mapping";
        case PathKind::streaming_load:
            return "streaming load";
        case PathKind::copy_engine:
            return "copy engine";
        case PathKind::engine_batch:
            return "engine batch";
        case PathKind::persistent_kernel:
            return "persistent kernel";
        case PathKind::kernel:
            return "kernel";
    }
    return "?";
}

}  // namespace gpunbd::storage
