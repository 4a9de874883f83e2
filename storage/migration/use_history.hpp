// Which pages of a volume are used rarely. The hot path only counts pins; tick() compares the
// counts with earlier ones from time to time, like the hand of a clock.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage {

class UseHistory {
 public:
    explicit UseHistory(const PagePool& pool)
        : uses_(pool.page_numbers()), idle_ticks_(pool.page_numbers(), longest) {}

    void tick(const PagePool& pool);
    // 0: the page has not been used for a long time. Each tick without use halves it.
    std::uint32_t heat(const PagePool& pool, PageIndex page) const {
        if (page >= uses_.size()) return std::uint32_t{1} << longest;  // the pool has grown
        const bool used_since = pool.uses(page) != uses_[page];
        return std::uint32_t{1} << longest >> (used_since ? 0 : idle_ticks_[page] + 1);
    }

 private:
    static constexpr std::uint8_t longest = 8;  // ticks

    std::vector<std::uint32_t> uses_;  // at the last tick
    std::vector<std::uint8_t> idle_ticks_;
};

}  // namespace gpunbd::storage
