// The page tables that may refer to pages of a pool: the tables of a volume and of its clones. A
// page has the same number in all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/pages/page_allocator.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

class PoolTables {
 public:
    explicit PoolTables(PageAllocator& memory) : memory_(memory) {}

    // The pool has `pages` more pages for this table, which outlives the pool or is removed. Throws
    // std::bad_alloc.
    void add(const PageTable& table, std::uint64_t pages);
    // The same for all tables of `home`, the pool from which pages can be moved here.
    void add_all_of(const PoolTables& home);
    // The table is not used here any more. `empty`: no entry refers to the pool, which may release
    // slabs; waits for that. Otherwise another process uses the table.
    void remove(const PageTable& table, bool empty) noexcept;
    // The table has so many pages here from now on. After a growth PageAllocator::fill() may be
    // needed.
    void resize(const PageTable& table, std::uint64_t pages) noexcept;
    bool has_other(const PageTable& table) const;
    // Whether the table is the first of those that share the pool now.
    bool is_first(const PageTable& table) const;

    // The caller holds the lock of the pool.
    std::size_t count() const {
        memory_.mutex().assert_held();
        return tables_.size();
    }
    // Calls `call` with the entry of page number `number` in each table. The number may be beyond
    // the end of a table: a write or a move that began before the table shrank ends there.
    template <typename Call>
    void for_each_slot(std::uint64_t number, Call call) const {
        memory_.mutex().assert_held();
        for (const Entry& each : tables_) {
            if (number < each.table->slots()) call(each.table->slot(number));
        }
    }

 private:
    struct Entry {
        const PageTable* table = nullptr;
        std::uint64_t pages = 0;  // the most that it can map here
    };
    std::vector<Entry>::iterator find(const PageTable& table) REQUIRES(memory_.mutex());

    PageAllocator& memory_;
    std::vector<Entry> tables_ GUARDED_BY(memory_.mutex());
};

}  // namespace gpunbd::storage
