// How many hold each page of a pool. Every thread counts in memory of its own, so that threads that
// pin the same pages pass no cache line between them; only who wants to free a page looks at all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "storage/pages/page_entry.hpp"

namespace gpunbd::storage {

class PinCounts {
 public:
    PinCounts() = default;  // of no pages
    // As many tables as there are CPUs, or as fit into `max_bytes`, but one in any case.
    PinCounts(std::size_t pages, std::uint64_t max_bytes);

    // Sequentially consistent, all three: see PagePool::pin().
    void add(PageIndex page) { mine()[page].fetch_add(1); }
    void remove(PageIndex page) { mine()[page].fetch_sub(1); }
    // A page that is not pinned any more after it was seen to be unmapped, may be pinned for an
    // instant again by who has not seen that yet.
    bool none(PageIndex page) const;

 private:
    // Pins that another thread takes back leave one table too high and one too low; the sum is
    // right and wraps around.
    using Table = std::unique_ptr<std::atomic<std::uint32_t>[]>;

    Table& mine() {
        if (thread_number_ == 0) thread_number_ = next_number();
        return tables_[thread_number_ & mask_];
    }
    static std::uint32_t next_number();

    static constinit thread_local std::uint32_t thread_number_;  // 0: has none yet
    std::vector<Table> tables_;
    std::uint32_t mask_ = 0;
};

}  // namespace gpunbd::storage
