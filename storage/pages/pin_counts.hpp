// Counts the pins of each page of a pool. Every thread counts in a table of its own, so that
// threads that pin the same pages share no cache line. Only a thread that wants to free a page
// reads all tables.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "storage/devices/page_entry.hpp"

namespace gpunbd::storage {

class PinCounts {
 public:
    PinCounts() = default;  // without pages
    // One table for each CPU, or as many as fit into `max_bytes`, but at least one.
    PinCounts(std::size_t pages, std::uint64_t max_bytes);

    // add(), remove() and none() are sequentially consistent: see PagePool::pin().
    void add(PageIndex page) { mine()[page].fetch_add(1); }
    void remove(PageIndex page) { mine()[page].fetch_sub(1); }
    // After none() has returned true for an unmapped page, a thread that has not yet seen the
    // unmapping may still pin it briefly.
    bool none(PageIndex page) const;

 private:
    // If another thread removes a pin, one table is too high and one too low; their sum is still
    // right, modulo 2^32.
    using Table = std::unique_ptr<std::atomic<std::uint32_t>[]>;

    Table& mine() {
        if (thread_number_ == 0) thread_number_ = next_number();
        return tables_[thread_number_ & mask_];
    }
    static std::uint32_t next_number();

    static constinit thread_local std::uint32_t thread_number_;  // 0: not assigned yet
    std::vector<Table> tables_;
    std::uint32_t mask_ = 0;
};

}  // namespace gpunbd::storage
