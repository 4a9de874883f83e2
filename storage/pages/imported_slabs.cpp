#include "storage/pages/imported_slabs.hpp"

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

ImportedSlabs::~ImportedSlabs() {
    for (auto& [place, imported] : slabs_) {
        if (imported.slab.bytes != 0) devices_[place.first]->release(imported.slab);
    }
}

void ImportedSlabs::import(std::uint32_t device, std::uint32_t slab, SlabEntry entry,
                           const SlabRecord& record, OwnedFd descriptor) {
    if (device >= devices_.size()) return;
    // Insert the entry first: after take_over() nothing may fail.
    const auto [at, is_new] =
        slabs_.try_emplace({device, slab}, Imported{.entry = entry, .slab = {}});
    if (!is_new) return;
    if (devices_[device]->take_over(descriptor, record, at->second.slab) != Status::ok)
        slabs_.erase(at);
}

bool ImportedSlabs::take(std::uint32_t device, std::uint32_t slab, SlabEntry entry,
                         Slab& out) noexcept {
    const auto found = slabs_.find({device, slab});
    if (found == slabs_.end() || found->second.entry != entry) return false;
    GPUNBD_ASSERT(found->second.slab.bytes != 0, "a slab is in the list once it is imported");
    out = std::move(found->second.slab);
    slabs_.erase(found);
    return true;
}

}  // namespace gpunbd::storage
