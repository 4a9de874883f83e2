// Which pages of a volume are used rarely. The hot path only counts pins; tick() compares the
// counts with earlier ones from time to time, like the hand of a clock.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage {

class UseHistory {
    static constexpr std::uint8_t longest = 8;  // ticks

 public:
    static constexpr std::uint32_t hottest = std::uint32_t{1}
                                             << longest;  // used since the last tick

    explicit UseHistory(const PagePool& pool)
        : uses_(pool.memory().slabs().page_numbers()),
          idle_ticks_(pool.memory().slabs().page_numbers(), longest) {}

    void tick(const PagePool& pool);
    // `page` has the contents that `from` had, which are as hot as before. Does nothing for pages
    // that are newer than the last tick.
    void moved(const PagePool& pool, PageIndex from, PageIndex page) {
        if (from >= uses_.size() || page >= uses_.size()) return;
        idle_ticks_[page] = idle_ticks_[from];
        uses_[page] = pool.memory().pages().uses(page);
    }
    // 0: the page has not been used for a long time. Each tick without use halves it.
    std::uint32_t heat(const PagePool& pool, PageIndex page) const {
        if (page >= uses_.size()) return hottest;  // the pool has grown
        const bool used_since = pool.memory().pages().uses(page) != uses_[page];
        return hottest >> (used_since ? 0 : idle_ticks_[page] + 1);
    }

 private:
    std::vector<std::uint32_t> uses_;  // at the last tick
    std::vector<std::uint8_t> idle_ticks_;
};

}  // namespace gpunbd::storage
