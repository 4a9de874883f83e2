// A device of a volume as the files of kept contents describe it.
#pragma once

#include <cstdint>
#include <cstring>

#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

// Of a volume; limited by the 16 bits in PageEntry.
inline constexpr std::uint32_t max_devices = 1 << 16;

struct DeviceRecord {
    static constexpr std::uint64_t max_pages = ~PageIndex{0};

    std::uint64_t pages;
    std::uint32_t slab_pages;
    std::uint32_t slabs;
    char identity[60];  // zero-terminated
    std::uint32_t home;

    static DeviceRecord of(const TableShape::DeviceShare& share) {
        DeviceRecord record{.pages = share.pages,
                            .slab_pages = share.slab_pages,
                            .slabs = share.slabs,
                            .identity = {},
                            .home = share.home};
        share.identity.copy(record.identity, sizeof record.identity - 1);
        return record;
    }
    TableShape::DeviceShare share() const {
        return {.identity = {identity, ::strnlen(identity, sizeof identity - 1)},
                .pages = pages,
                .slab_pages = slab_pages,
                .slabs = slabs,
                .home = home};
    }
};
static_assert(sizeof(DeviceRecord) == 80);

}  // namespace gpunbd::storage
