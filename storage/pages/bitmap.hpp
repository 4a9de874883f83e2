// A set of small numbers, one bit each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

class Bitmap {
 public:
    explicit Bitmap(std::size_t bits) : words_(bits / word_bits + 1) {}

    // Throws std::bad_alloc.
    void grow(std::size_t bits) { words_.resize(bits / word_bits + 1); }
    void set(std::uint32_t bit) { words_[word_of(bit)] |= mask(bit); }
    void reset(std::uint32_t bit) { words_[word_of(bit)] &= ~mask(bit); }
    bool is_set(std::uint32_t bit) const { return (words_[word_of(bit)] & mask(bit)) != 0; }
    // The first set bit in [from, to), or `to`.
    std::uint32_t first_set(std::uint32_t from, std::uint32_t to) const {
        GPUNBD_ASSERT(from < to, "a range that is searched has a bit");
        std::uint32_t index = from / word_bits;
        const std::uint32_t last = (to - 1) / word_bits;
        std::uint64_t word = words_[index] & ~std::uint64_t{0} << (from % word_bits);
        while (word == 0) {
            if (index == last) return to;
            word = words_[++index];
        }
        return std::min(to, index * word_bits + static_cast<std::uint32_t>(std::countr_zero(word)));
    }

 private:
    static constexpr std::uint32_t word_bits = 64;
    std::size_t word_of(std::uint32_t bit) const {
        GPUNBD_ASSERT(bit / word_bits < words_.size(), "the set has grown to each of its numbers");
        return bit / word_bits;
    }
    static std::uint64_t mask(std::uint32_t bit) { return std::uint64_t{1} << (bit % word_bits); }

    std::vector<std::uint64_t> words_;
};

}  // namespace gpunbd::storage
