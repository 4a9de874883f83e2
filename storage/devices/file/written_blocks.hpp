// Which blocks were written since they were last cleared. All others read as zeroes, whatever the
// file contains there, so clearing memory does not touch the file.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "storage/devices/file/blocks.hpp"

namespace gpunbd::storage {

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
