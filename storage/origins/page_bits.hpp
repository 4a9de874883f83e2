#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace gpunbd::storage {

// A bit for each page. Any thread may read it; what another thread did before it changed a bit is
// seen by those that read the bit.
class PageBits {
 public:
    explicit PageBits(std::uint64_t pages) : words_((pages + bits - 1) / bits) {}

    bool test(std::uint64_t page) const {
        return (words_[page / bits].load(std::memory_order_acquire) & bit_of(page)) != 0;
    }
    void set(std::uint64_t page, bool value) {
        std::atomic<std::uint64_t>& word = words_[page / bits];
        if (value) {
            word.fetch_or(bit_of(page), std::memory_order_release);
        } else {
            word.fetch_and(~bit_of(page), std::memory_order_release);
        }
    }

 private:
    static constexpr std::uint64_t bits = 64;  // of a word
    static std::uint64_t bit_of(std::uint64_t page) { return std::uint64_t{1} << page % bits; }

    std::vector<std::atomic<std::uint64_t>> words_;
};

}  // namespace gpunbd::storage
