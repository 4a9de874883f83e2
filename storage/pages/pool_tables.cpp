#include "storage/pages/pool_tables.hpp"

#include <algorithm>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void PoolTables::add(const PageTable& table, std::uint64_t pages) {
    const Lock lock(memory_.mutex());
    GPUNBD_ASSERT(find(table) == tables_.end(), "a table is added to a pool once");
    tables_.push_back({&table, pages});
    // The pool was made for the first one.
    if (tables_.size() != 1) memory_.promise(static_cast<std::int64_t>(pages));
}

void PoolTables::add_all_of(const PoolTables& home) {
    std::vector<Entry> tables;
    {
        const Lock lock(home.memory_.mutex());
        tables = home.tables_;
    }
    const Lock lock(memory_.mutex());
    tables_ = std::move(tables);
    std::uint64_t pages = 0;
    for (const Entry& each : tables_) pages += each.pages;
    const auto more = static_cast<std::int64_t>(pages - memory_.slabs().config().pages);
    if (tables_.size() != 1 || more != 0) memory_.promise(more);
}

void PoolTables::remove(const PageTable& table, bool empty) noexcept {
    const Lock lock(memory_.mutex());
    const auto removed = find(table);
    if (removed == tables_.end()) return;
    const auto pages = static_cast<std::int64_t>(removed->pages);
    tables_.erase(removed);
    // The pages of a table that another process uses stay promised.
    if (!tables_.empty() && empty) memory_.promise(-pages);
}

void PoolTables::resize(const PageTable& table, std::uint64_t pages) noexcept {
    const Lock lock(memory_.mutex());
    const auto resized = find(table);
    GPUNBD_ASSERT(resized != tables_.end(), "a volume is resized in pools that know its table");
    const auto more = static_cast<std::int64_t>(pages - resized->pages);
    resized->pages = pages;
    memory_.promise(more);
}

bool PoolTables::has_other(const PageTable& table) const {
    const Lock lock(memory_.mutex());
    return std::ranges::any_of(tables_, [&](const Entry& each) { return each.table != &table; });
}

bool PoolTables::is_first(const PageTable& table) const {
    const Lock lock(memory_.mutex());
    return !tables_.empty() && tables_.front().table == &table;
}

std::vector<PoolTables::Entry>::iterator PoolTables::find(const PageTable& table) {
    return std::ranges::find(tables_, &table, &Entry::table);
}

}  // namespace gpunbd::storage
