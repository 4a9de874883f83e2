// What a page pool is configured with: its share of a volume on one device.
#pragma once

#include <cstdint>
#include <memory>

#include "storage/devices/device.hpp"
#include "storage/pages/kept_parts.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/shared_directory.hpp"

namespace gpunbd::storage {

struct PoolConfig {
    std::uint32_t device = 0;  // the index of the device in the volume
    std::uint32_t home =
        0;  // of the device from which pages are moved here; of the layout: `device`
    std::uint64_t page_size = 0;  // bytes, a power of two
    std::uint64_t pages = 0;      // the most pages that the volume maps here at once
    Provision provision = Provision::thin;
    std::uint32_t slab_pages = 1;  // a power of two; the last slab may be shorter
    std::uint32_t slabs = 1;       // at first; those of the directory are among them
    SlabDirectory directory;       // of kept slabs; in the table, unless `shared` is in use
    std::shared_ptr<const SharedDirectory> shared = nullptr;  // null: there is none yet
    std::shared_ptr<KeptParts> kept_parts = nullptr;          // null: slabs are not kept
    SlabBudget* budget = nullptr;  // outlives the pool; null: that of the device
    // The layout places no page here. Pages of another pool are moved here when its memory has to
    // be given back.
    bool is_spill = false;
    // The directory has room for one slab more than `pages` need.
    bool has_spare_slab = false;

    bool is_kept() const { return kept_parts != nullptr; }
    // The most pages in slabs, while only the first table uses the pool.
    std::uint64_t max_reserved() const { return pages + (has_spare_slab ? slab_pages : 0); }
};

// The best slab size for so many pages, in pages. Each kept slab costs a descriptor, so
// `kept` gives large volumes larger slabs.
std::uint32_t slab_pages_for(std::uint64_t pages, std::uint64_t page_size, bool kept);
// How many slabs hold so many pages; at least one.
std::uint32_t slabs_for(std::uint64_t pages, std::uint32_t slab_pages);

}  // namespace gpunbd::storage
