#include "storage/pages/pool_config.hpp"

#include <algorithm>
#include <bit>

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t preferred_slab = 64 << 20;    // bytes: fits fragmented memory
constexpr std::uint64_t kept_slabs = 64;              // of a volume, about
constexpr std::uint64_t largest_kept_slab = 1 << 30;  // bytes

}  // namespace

std::uint32_t slab_pages_for(std::uint64_t pages, std::uint64_t page_size, bool kept) {
    const std::uint64_t wanted = std::max<std::uint64_t>(pages, 1);
    std::uint64_t bytes = preferred_slab;
    if (kept) {
        bytes = std::clamp(std::bit_ceil(wanted * page_size / kept_slabs), preferred_slab,
                           largest_kept_slab);
    }
    return static_cast<std::uint32_t>(
        std::min(std::max<std::uint64_t>(bytes / page_size, 1), std::bit_ceil(wanted)));
}

std::uint32_t slabs_for(std::uint64_t pages, std::uint32_t slab_pages) {
    return static_cast<std::uint32_t>(
        std::max<std::uint64_t>((pages + slab_pages - 1) / slab_pages, 1));
}

}  // namespace gpunbd::storage
