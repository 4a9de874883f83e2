// The file of a `file:` device is read, written and encrypted in blocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

inline constexpr std::uint64_t block_bytes = 4096;  // as direct I/O needs it

struct BlockRange {
    std::uint64_t first = 0;  // block number: the offset in the file divided by block_bytes
    std::uint64_t end = 0;    // one past the last

    // The blocks that contain these bytes, at least partly.
    static BlockRange around(std::uint64_t offset, std::uint64_t bytes) {
        return {offset / block_bytes, (offset + bytes + block_bytes - 1) / block_bytes};
    }
    // The blocks that lie in these bytes completely.
    static BlockRange within(std::uint64_t offset, std::uint64_t bytes) {
        const BlockRange whole{(offset + block_bytes - 1) / block_bytes,
                               (offset + bytes) / block_bytes};
        return whole.first < whole.end ? whole : BlockRange{};
    }
    std::uint64_t count() const { return end - first; }
    bool overlaps(const BlockRange& other) const { return first < other.end && other.first < end; }
};

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

// Orders the copies of all channels that touch the same blocks. A copy that covers part of a block
// reads the block, changes it and writes it back; another write of the block in between would be
// lost. Reads are ordered as well: a file system may show a reader parts of an old and of a new
// block, and their bytes decrypt correctly only in units of the cipher.
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

// Which blocks were written since they were last cleared. All others read as zeroes, whatever the
// file contains there, so clearing memory does not touch the file.
// Any thread may call its functions.
class WrittenBlocks {
 public:
    explicit WrittenBlocks(std::uint64_t blocks)
        : words_(std::make_unique<std::atomic<std::uint64_t>[]>(blocks / 64 + 1)) {}

    bool test(std::uint64_t block) const {
        return (words_[block / 64].load(std::memory_order_acquire) >> block % 64 & 1) != 0;
    }
    void set(BlockRange range) noexcept {
        for_each_word(range, [](std::atomic<std::uint64_t>& word, std::uint64_t mask) {
            word.fetch_or(mask, std::memory_order_acq_rel);
        });
    }
    void reset(BlockRange range) noexcept {
        for_each_word(range, [](std::atomic<std::uint64_t>& word, std::uint64_t mask) {
            word.fetch_and(~mask, std::memory_order_acq_rel);
        });
    }

 private:
    template <typename Change>
    void for_each_word(BlockRange range, Change change) noexcept {
        for (std::uint64_t block = range.first; block < range.end;) {
            const std::uint64_t bit = block % 64;
            const std::uint64_t bits = std::min(range.end - block, 64 - bit);
            change(words_[block / 64], ~std::uint64_t{0} >> (64 - bits) << bit);
            block += bits;
        }
    }

    std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace gpunbd::storage
