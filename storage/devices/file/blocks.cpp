#include "storage/devices/file/blocks.hpp"

#include <iterator>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void BlockLocks::request(BlockLock& lock, BlockRange range, BlockLock::Kind kind) noexcept {
    GPUNBD_ASSERT(!lock.is_linked(), "the lock of a copy is released before it is used again");
    lock.range_ = range;
    lock.kind_ = kind;
    const Lock guard(mutex_);
    std::uint32_t ahead = 0;
    for (const BlockLock& earlier : locks_) ahead += earlier.conflicts_with(lock) ? 1 : 0;
    lock.ahead_.store(ahead, std::memory_order_relaxed);
    locks_.push_back(lock);
}

void BlockLocks::release(BlockLock& lock) noexcept {
    const Lock guard(mutex_);
    GPUNBD_ASSERT(lock.is_linked(), "a lock is released once");
    const auto self = locks_.iterator_to(lock);
    for (auto later = std::next(self); later != locks_.end(); ++later) {
        if (!later->conflicts_with(lock)) continue;
        GPUNBD_ASSERT(!later->granted(), "a lock waits for each earlier one that conflicts");
        later->ahead_.fetch_sub(1, std::memory_order_release);
    }
    locks_.erase(self);
}

}  // namespace gpunbd::storage
