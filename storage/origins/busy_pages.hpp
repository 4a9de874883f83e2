// The pages of a cache that its workers work on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

// Pages of a volume, by number.
struct PageRange {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    bool overlaps(PageRange other) const { return begin < other.end && other.begin < end; }
    bool contains(std::uint64_t page) const { return begin <= page && page < end; }
};

// No two workers fetch, write or zero one page at the same time. Each has one range. The caller
// has a mutex.
class BusyPages {
 public:
    explicit BusyPages(std::size_t workers) : ranges_(workers) {}

    // Whether a worker works on the page.
    bool is_used(std::uint64_t page) const { return has(page, false); }
    // Whether a worker may begin with the page. False: end() will return true. `respects_waiting`:
    // not if a worker waits for the page.
    bool may_begin(std::uint64_t page, bool respects_waiting) {
        return !note_wait(has(page, respects_waiting));
    }
    void begin(std::size_t worker, PageRange pages) {
        GPUNBD_ASSERT(!is_waiting_for_others(worker, pages), "one worker works on a page");
        ranges_[worker] = {.pages = pages};
    }
    // The worker will work on these: other workers that respect it do not begin with them.
    void wait_for(std::size_t worker, PageRange pages) {
        ranges_[worker] = {.pages = pages, .is_waiting = true};
    }
    // After wait_for(), begins if no other worker has any of the pages. False: end() will return
    // true.
    bool begin_waiting(std::size_t worker) {
        Range& mine = ranges_[worker];
        if (note_wait(is_waiting_for_others(worker, mine.pages))) return false;
        mine.is_waiting = false;
        return true;
    }
    // Returns whether something waits for pages that were used.
    [[nodiscard]] bool end(std::size_t worker) {
        ranges_[worker] = {};
        return std::exchange(is_awaited_, false);
    }
    bool is_awaited() const { return is_awaited_; }

 private:
    struct Range {
        PageRange pages;
        bool is_waiting = false;
    };

    // Whether a worker works on the page; `also_waiting`: or waits for it.
    bool has(std::uint64_t page, bool also_waiting) const {
        return std::ranges::any_of(ranges_, [&](const Range& each) {
            return (also_waiting || !each.is_waiting) && each.pages.contains(page);
        });
    }
    bool is_waiting_for_others(std::size_t worker, PageRange pages) const {
        return std::ranges::any_of(ranges_, [&](const Range& each) {
            return &each != &ranges_[worker] && each.pages.overlaps(pages);
        });
    }
    bool note_wait(bool waits) {
        is_awaited_ = is_awaited_ || waits;
        return waits;
    }

    std::vector<Range> ranges_;  // by worker
    bool is_awaited_ = false;
};

}  // namespace gpunbd::storage
