// Orders the copies of all channels that touch the same blocks. A copy that covers part of a block
// reads the block, changes it and writes it back; another write of the block in between would be
// lost. Reads are ordered as well: a file system may show a reader parts of an old and of a new
// block, and their bytes decrypt correctly only in units of the cipher.
#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>

#include "storage/base/mutex.hpp"
#include "storage/devices/file/blocks.hpp"

namespace gpunbd::storage {

// The lock of one copy on its blocks. It does not move between request() and release().
class BlockLock : public boost::intrusive::list_base_hook<> {
 public:
    enum class Kind : std::uint8_t { shared, exclusive };

    // Nothing blocks: the owner asks again in its next poll.
    bool granted() const { return ahead_.load(std::memory_order_acquire) == 0; }

 private:
    friend class BlockLocks;
    bool conflicts_with(const BlockLock& other) const {
        return (kind_ == Kind::exclusive || other.kind_ == Kind::exclusive) &&
               range_.overlaps(other.range_);
    }

    BlockRange range_;
    Kind kind_ = Kind::shared;
    std::atomic<std::uint32_t> ahead_{0};  // conflicting locks that were requested earlier
};

// Any thread may call its functions. Locks are granted in the order of their requests. A channel
// requests a bounded number of them, so that the list stays short.
class BlockLocks {
 public:
    void request(BlockLock& lock, BlockRange range, BlockLock::Kind kind) noexcept;
    void release(BlockLock& lock) noexcept;

 private:
    Mutex mutex_;
    boost::intrusive::list<BlockLock> locks_ GUARDED_BY(mutex_);  // in the order of their requests
};

}  // namespace gpunbd::storage
