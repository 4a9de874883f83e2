// Counts the pins of each page of a pool. Every thread counts in a table of its own, so that
// threads that pin the same pages share no cache line. Only a thread that wants to free or to move
// a page reads all tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/atomic.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/pages/growing_array.hpp"

namespace gpunbd::storage {

enum class Access : std::uint8_t {
    read,
    write,
    send,  // the page itself is sent to a client, for as long as the client likes
};

class PinCounts {
 public:
    PinCounts() = default;  // without pages
    // One table for each CPU, or as many as fit into `max_bytes`, but at least one.
    PinCounts(std::size_t pages, std::uint64_t max_bytes);
    // See GrowingArray::grow().
    void grow(std::size_t pages);

    // These functions are sequentially consistent: see PageStates::pin().
    // `access`: read or write.
    void add(PageIndex page, Access access) { mine()[page].fetch_add(one(access) + one_use); }
    void remove(PageIndex page, Access access) { mine()[page].fetch_sub(one(access)); }
    // After these have returned false, a thread that has not yet seen the page unmapped or moving
    // may still pin it briefly.
    bool any(PageIndex page) const { return sum(page) % one_use != 0; }
    bool any_writer(PageIndex page) const { return sum(page) % one_use >= one(Access::write); }
    // How often the page was pinned, modulo max_uses.
    static constexpr std::uint32_t max_uses = 1 << 20;
    std::uint32_t uses(PageIndex page) const {
        return static_cast<std::uint32_t>(sum(page) / one_use);
    }

 private:
    // Each count has three fields: 24 bits of readers, 20 bits of writers, 20 bits of uses. If
    // another thread removes a pin, one table is too high and one too low; the sum of all tables is
    // still right, modulo 2^64.
    using Table = GrowingArray<Atomic<std::uint64_t>>;
    static constexpr std::uint64_t one_use = std::uint64_t{1} << 44;
    static constexpr std::uint64_t one(Access access) {
        GPUNBD_ASSERT(access != Access::send, "pages that are sent have counts of their own");
        return access == Access::read ? 1 : std::uint64_t{1} << 24;
    }

    const Table& mine() const {
        if (thread_number_ == 0) thread_number_ = next_number();
        return tables_[thread_number_ & mask_];
    }
    static std::uint32_t next_number();
    std::uint64_t sum(PageIndex page) const;

    static constinit thread_local std::uint32_t thread_number_;  // 0: not assigned yet
    std::vector<Table> tables_;
    std::uint32_t mask_ = 0;
};

}  // namespace gpunbd::storage
