// Memory of a device that another pool may have, because its contents can be read again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "storage/base/atomic.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

class SlabLender {
 public:
    // Makes a slab of the device free, which is released soon. False: each has to stay. Any thread
    // calls it.
    virtual bool release_slab() noexcept = 0;
    // Bytes of slabs that it may be able to make free.
    virtual std::uint64_t lendable() const noexcept = 0;

 protected:
    ~SlabLender() = default;
};

// Those of one device.
class SlabLenders {
 public:
    // While it exists, a pool needs memory now. Lenders, and pools that need it later, take none.
    class Asking {
     public:
        explicit Asking(SlabLenders& lenders) : lenders_(lenders) { lenders_.askers_.fetch_add(1); }
        ~Asking() { lenders_.askers_.fetch_sub(1); }
        Asking(const Asking&) = delete;
        Asking& operator=(const Asking&) = delete;

        // One of them makes a slab free, each in its turn. False: none can.
        bool release_slab() { return lenders_.release_slab(); }

     private:
        SlabLenders& lenders_;
    };
    bool are_asked() const { return askers_.load() != 0; }

    std::uint64_t lendable() const EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        std::uint64_t bytes = 0;
        for (const SlabLender* each : all_) bytes += each->lendable();
        return bytes;
    }
    // Throws std::bad_alloc.
    void add(SlabLender& lender) EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        all_.push_back(&lender);
    }
    // Waits until it is not being called.
    void remove(SlabLender& lender) EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        std::erase(all_, &lender);
    }

 private:
    bool release_slab() EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        for (auto tries = all_.size(); tries != 0; --tries) {
            std::ranges::rotate(all_, all_.begin() + 1);
            if (all_.back()->release_slab()) return true;
        }
        return false;
    }

    Atomic<std::uint32_t> askers_{0};
    mutable Mutex mutex_;
    std::vector<SlabLender*> all_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::storage
