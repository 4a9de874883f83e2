// The parts of pages: a page of a cache may have the contents of some of its parts only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

// Some parts of one page: bit n is the part with number n.
using Parts = std::uint64_t;

// How a page is divided: into parts of 64 KiB, unless these are more than 64.
class PageDivision {
 public:
    // Bytes, a power of two.
    explicit PageDivision(std::uint64_t page_size)
        : shift_(static_cast<std::uint32_t>(
              std::countr_zero(std::max(std::min(page_size, shortest), page_size / most)))),
          parts_(page_size >> shift_) {}

    std::uint64_t part_size() const { return std::uint64_t{1} << shift_; }  // bytes
    std::uint64_t parts() const { return parts_; }                          // of a page
    Parts all() const { return run(0, parts_); }
    // `count` parts from `first` on.
    static Parts run(std::uint64_t first, std::uint64_t count) {
        GPUNBD_ASSERT(count != 0 && first + count <= most, "a run of parts lies in its page");
        return ~Parts{0} >> (most - count) << first;
    }
    // The parts that have any of `length` bytes from `offset` in the page on.
    Parts of(std::uint64_t offset, std::uint64_t length) const {
        const std::uint64_t first = offset >> shift_;
        return run(first, ((offset + length - 1) >> shift_) - first + 1);
    }
    // The parts that have none but these bytes.
    Parts within(std::uint64_t offset, std::uint64_t length) const {
        const std::uint64_t first = (offset + part_size() - 1) >> shift_;
        const std::uint64_t end = (offset + length) >> shift_;
        return first < end ? run(first, end - first) : 0;
    }

 private:
    static constexpr std::uint64_t shortest = 64 << 10;
    static constexpr std::uint64_t most = 64;

    std::uint32_t shift_;
    std::uint64_t parts_;
};

}  // namespace gpunbd::storage
