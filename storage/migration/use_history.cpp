#include "storage/migration/use_history.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void UseHistory::tick(const PagePool& pool) {
    GPUNBD_ASSERT(uses_.size() <= pool.memory().slabs().page_numbers(),
                  "a history belongs to one pool, which grows");
    uses_.resize(pool.memory().slabs().page_numbers());
    idle_ticks_.resize(pool.memory().slabs().page_numbers(), longest);
    for (PageIndex page = 0; page != uses_.size(); ++page) {
        const std::uint32_t uses = pool.memory().pages().uses(page);
        const int idle = uses == uses_[page] ? idle_ticks_[page] + 1 : 0;
        idle_ticks_[page] = static_cast<std::uint8_t>(std::min<int>(idle, longest));
        uses_[page] = uses;
    }
}

}  // namespace gpunbd::storage
