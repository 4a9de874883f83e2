// Where the table and the slabs of a volume that outlives the process are put: somebody else keeps
// their descriptors.
#pragma once

#include <cstdint>

namespace gpunbd::storage {

class SlabKeeper {
 public:
    // Before any slab. As keep().
    virtual bool keep_table(int descriptor) noexcept = 0;
    // `device` and `slab` are numbers within the volume. The caller keeps `descriptor`. Blocks
    // until somebody else has it as well; false: nobody has.
    virtual bool keep(std::uint32_t device, std::uint32_t slab, int descriptor) noexcept = 0;
    virtual void forget(std::uint32_t device, std::uint32_t slab) noexcept = 0;

 protected:
    ~SlabKeeper() = default;
};

}  // namespace gpunbd::storage
