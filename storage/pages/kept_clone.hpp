#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "storage/assertions/assert.hpp"
#include "storage/pages/kept_cache.hpp"

namespace gpunbd::storage {

// What the page table knows besides its entries, if the volume is a clone of a cache and reads from
// it what it does not have itself: the pages that read as zeroes instead, and the id of the source
// of the cache. All is valid after every store, also for the next process after a kill.
//
// Any thread may call these functions. The words belong to the table.
class KeptClone {
 public:
    KeptClone() = default;  // of another volume
    // `words`: so many as words_for() returns.
    KeptClone(std::uint64_t* words, std::uint64_t pages)
        : bits_(words, bit_words(pages)), source_(bits_.data() + bits_.size()) {}
    static constexpr std::uint64_t words_for(std::uint64_t pages) { return bit_words(pages) + 2; }

    bool is_clone() const { return source_ != nullptr; }

    // What another thread did before it zeroed the page is seen by those that read this.
    bool is_zeroed(std::uint64_t page) const {
        return (word_of(page).load(std::memory_order_acquire) & bit_of(page)) != 0;
    }
    void set_zeroed(std::uint64_t page) const {
        word_of(page).fetch_or(bit_of(page), std::memory_order_release);
    }

    SourceId source() const { return {source_[0], source_[1]}; }
    // Before another process can take the volume over.
    void set_source(const SourceId& id) const { std::ranges::copy(id, source_); }

 private:
    static constexpr std::uint64_t bits = 64;  // of a word
    static constexpr std::uint64_t bit_words(std::uint64_t pages) {
        return (pages + bits - 1) / bits;
    }
    static std::uint64_t bit_of(std::uint64_t page) { return std::uint64_t{1} << page % bits; }
    std::atomic_ref<std::uint64_t> word_of(std::uint64_t page) const {
        GPUNBD_ASSERT(page / bits < bits_.size(), "a clone has a bit for each of its pages");
        return std::atomic_ref(bits_[page / bits]);
    }

    std::span<std::uint64_t> bits_;
    std::uint64_t* source_ = nullptr;
};

}  // namespace gpunbd::storage
