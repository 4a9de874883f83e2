// The page pools of volumes that share pages, by the index of their device: those of the layout,
// then those of the spill memory. A pool of spill memory can be added while other threads use the
// other pools.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"
#include "storage/pages/page_pool.hpp"
#include "storage/pages/shared_directory.hpp"

namespace gpunbd::storage {

class PoolList {
 public:
    // `directory`: of kept volumes that share pages already; null: there is none.
    PoolList(std::uint32_t room, std::shared_ptr<const SharedDirectory> directory)
        : room_(room),
          pools_(std::make_unique<std::shared_ptr<PagePool>[]>(room)),
          directory_(std::move(directory)) {}
    // A pool uses those of its spill memory until it ends, so they end after it.
    ~PoolList() {
        for (std::uint32_t index = 0; index != size(); ++index) pools_[index].reset();
    }
    PoolList(const PoolList&) = delete;
    PoolList& operator=(const PoolList&) = delete;

    std::uint32_t size() const { return size_.load(std::memory_order_acquire); }
    bool is_full() const { return size() == room_; }
    // One thread at a time. The pool is used by threads that know of it through size() or through a
    // later store of the thread that adds it.
    void add(std::shared_ptr<PagePool> pool) noexcept {
        const std::uint32_t index = size();
        GPUNBD_ASSERT(index != room_, "a pool is added only to a list that is not full");
        pools_[index] = std::move(pool);
        size_.store(index + 1, std::memory_order_release);
    }

    PagePool& at(std::uint32_t index) const {
        GPUNBD_ASSERT(index < size(), "a pool is in the list before any entry refers to it");
        return *pools_[index];
    }
    const std::shared_ptr<PagePool>& shared(std::uint32_t index) const { return pools_[index]; }
    PagePool& front() const { return *pools_[0]; }

    // Serializes clones of the volumes, and what may not change meanwhile.
    Mutex& cloning() RETURN_CAPABILITY(cloning_) { return cloning_; }
    // The directory of kept slabs, which all volumes can use; null: there is none.
    std::shared_ptr<const SharedDirectory> directory() const {
        const Lock lock(mutex_);
        return directory_;
    }
    // The directory of the slabs is there from now on. It is kept already.
    void move_directory(const std::shared_ptr<const SharedDirectory>& target) REQUIRES(cloning_) {
        {
            const Lock lock(mutex_);
            directory_ = target;
        }
        for (const auto& pool : *this) pool->memory().move_directory(target);
    }
    const std::shared_ptr<PagePool>* begin() const { return pools_.get(); }
    const std::shared_ptr<PagePool>* end() const { return pools_.get() + size(); }

 private:
    const std::uint32_t room_;
    std::unique_ptr<std::shared_ptr<PagePool>[]> pools_;
    std::atomic<std::uint32_t> size_{0};
    Mutex cloning_;
    mutable Mutex mutex_;
    std::shared_ptr<const SharedDirectory> directory_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::storage
