// The paths that bytes take between staging memory and device memory, as policies name them and
// counters count them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpunbd::storage {

enum class PathKind : std::uint8_t {
    mapping,            // the CPU stores into the mapping
    streaming_load,     // the CPU loads out of the mapping
    copy_engine,        // an asynchronous copy (for zeroes: an asynchronous memset)
    engine_batch,       // one call of the copy engines for all waiting copies
    persistent_kernel,  // a lingering kernel serves it from a mailbox, without a driver call
    kernel,             // one gather/scatter kernel for all waiting copies
    managed,            // the CPU accesses managed memory and keeps its pages on the host
    file,               // read from or written to a file
};
inline constexpr std::size_t path_kinds = 8;

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
        case PathKind::managed:
            return "managed memory";
        case PathKind::file:
            return "file I/O";
    }
    return "?";
}

}  // namespace gpunbd::storage
