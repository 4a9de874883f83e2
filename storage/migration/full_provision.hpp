// The memory that volumes with Provision::full were promised. A slab of such a volume leaves the
// device only while spill memory can take its place, also if it has no pages: the next write must
// find memory. Thin volumes with the same spill memory may use it up nevertheless.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

// The state of the pools when it is made. All sizes are in bytes.
class FullProvision {
 public:
    FullProvision(const std::vector<std::shared_ptr<Volume>>& volumes, const Device& device);

    // Whether the pool may lose a slab of this size.
    bool may_leave(const PagePool& pool, std::uint64_t bytes) const;
    // The pool loses it.
    void leave(const PagePool& pool, std::uint64_t bytes);

 private:
    struct Share {
        const PagePool* pool = nullptr;
        std::uint64_t promised = 0;
        std::uint64_t present = 0;  // with its spill memory
    };

    std::vector<Share> shares_;
    std::uint64_t room_ = 0;  // in all spill memory, for other slabs
};

}  // namespace gpunbd::storage
