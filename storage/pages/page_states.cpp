#include "storage/pages/page_states.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

#include "storage/base/control_groups.hpp"

namespace gpunbd::storage {

constinit thread_local std::uint32_t PinCounts::thread_number_ = 0;

PinCounts::PinCounts(std::size_t pages, std::uint64_t max_bytes) {
    const std::uint64_t fit =
        max_bytes / (std::max<std::size_t>(pages, 1) * sizeof(Atomic<std::uint64_t>));
    const std::uint64_t cpus = std::bit_ceil(usable_cpus());
    const std::uint64_t tables = std::bit_floor(std::clamp<std::uint64_t>(fit, 1, cpus));
    for (std::uint64_t i = 0; i != tables; ++i) tables_.emplace_back(pages);
    mask_ = static_cast<std::uint32_t>(tables - 1);
}

void PinCounts::grow(std::size_t pages) {
    for (Table& table : tables_) table.grow(pages);
}

std::uint64_t PinCounts::sum(PageIndex page) const {
    std::uint64_t sum = 0;
    for (const Table& table : tables_) sum += table[page].load();
    return sum;
}

std::uint32_t PinCounts::next_number() {
    static std::atomic<std::uint32_t> last{0};
    return ++last;
}

}  // namespace gpunbd::storage
