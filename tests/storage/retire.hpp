// What a volume does when it unmaps a page, without a volume.
#pragma once

#include <optional>

#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage::test {

inline void retire(PagePool& pool, PageIndex page, std::uint64_t number = 0) {
    pool.retire(number, [page] { return std::optional(page); });
}

}  // namespace gpunbd::storage::test
