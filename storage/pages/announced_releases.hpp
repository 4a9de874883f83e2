// The slabs of one pool that PendingReleases counts. The caller holds the lock of the pool.
#pragma once

#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/devices/pending_releases.hpp"

namespace gpunbd::storage {

class AnnouncedReleases {
 public:
    explicit AnnouncedReleases(PendingReleases& pending) : pending_(pending) {}
    ~AnnouncedReleases() { set_announced(0); }
    AnnouncedReleases(const AnnouncedReleases&) = delete;
    AnnouncedReleases& operator=(const AnnouncedReleases&) = delete;

    // A slab is being released.
    void begin() { ++releasing_; }
    void end() {
        GPUNBD_ASSERT(releasing_ != 0, "a release ends once");
        --releasing_;
    }
    // So many slabs are going to be released, besides those that are being released.
    void announce(std::uint32_t slabs) { set_announced(releasing_ + slabs); }

 private:
    void set_announced(std::uint32_t slabs) {
        for (; announced_ < slabs; ++announced_) pending_.begin();
        for (; announced_ > slabs; --announced_) pending_.end();
    }

    PendingReleases& pending_;
    std::uint32_t releasing_ = 0;
    std::uint32_t announced_ = 0;
};

}  // namespace gpunbd::storage
