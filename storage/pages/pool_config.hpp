#pragma once

#include <cstdint>
#include <memory>

#include "storage/base/owned_fd.hpp"
#include "storage/devices/device.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/shared_directory.hpp"

namespace gpunbd::storage {

// Keeps the descriptors of a volume's table and slabs, so that the volume outlives the process. The
// volume and its page pools share ownership. Volumes that share pages have such an object each; all
// of them keep the same slabs, as long as the table of any of these volumes is kept.
class KeptParts {
 public:
    // All functions may be called from any thread.
    //
    // Called before keep(), with the same contract.
    virtual bool keep_table(const OwnedFd& descriptor) noexcept = 0;
    // The same, for the SharedDirectory of all volumes that share the slabs.
    virtual bool keep_directory(const OwnedFd& descriptor) noexcept = 0;
    // `device` and `slab` are numbers within the volume. Blocks until the slab is kept. Returns
    // false if it may not be kept, or if an earlier slab of this number cannot be dropped yet;
    // call drop() then.
    virtual bool keep(std::uint32_t device, std::uint32_t slab,
                      const OwnedFd& descriptor) noexcept = 0;
    // The slab need not be kept any more. At the latest, it is dropped before its number is kept
    // again.
    virtual void drop(std::uint32_t device, std::uint32_t slab) noexcept = 0;
    // Whether the volume of these parts outlives the process. Otherwise it ends with its object.
    virtual bool keeps() const noexcept = 0;

 protected:
    ~KeptParts() = default;
};

// What a page pool is configured with: its share of a volume on one device.
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
    bool keeps_empty_slab = true;  // one, for the next pages, with Provision::thin
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
