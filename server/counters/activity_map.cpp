#include "server/counters/activity_map.hpp"

#include <bit>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint64_t stamps_until_again = 0xffff;  // 18 hours

std::uint16_t stamp_of(std::uint64_t second) {
    return static_cast<std::uint16_t>(second % stamps_until_again + 1);
}

std::uint16_t stamp_before(std::uint16_t stamp) {
    return static_cast<std::uint16_t>(stamp == 1 ? stamps_until_again : stamp - 1);
}

}  // namespace

ActivityMap::ActivityMap(std::uint64_t size, std::uint64_t page_size)
    : size_(size), shift_(static_cast<std::uint32_t>(std::countr_zero(page_size))) {
    GPUNBD_ASSERT(size != 0 && std::has_single_bit(page_size),
                  "an export is not empty, and its page size is a power of two");
    while (((size_ - 1) >> shift_) >= max_cells) ++shift_;
}

ActivityMap::~ActivityMap() { delete cells_.load(); }

void ActivityMap::touch(Stamps& stamps, std::uint64_t offset, std::uint64_t length) const {
    if (length == 0) return;
    const Stamp now = now_.load(std::memory_order_relaxed);
    const std::uint64_t last = (offset + length - 1) >> shift_;
    GPUNBD_ASSERT(last < stamps.size(), "a request lies in its export");
    for (std::uint64_t i = offset >> shift_; i <= last; ++i) {
        // Other workers write there too: a correct value stays in their caches.
        if (stamps[i].load(std::memory_order_relaxed) != now) {
            stamps[i].store(now, std::memory_order_relaxed);
        }
    }
}

void ActivityMap::watch(std::uint64_t second) {
    now_.store(stamp_of(second), std::memory_order_relaxed);
    if (cells_.load() != nullptr) return;
    cells_.store(std::make_unique<Cells>(((size_ - 1) >> shift_) + 1).release(),
                 std::memory_order_release);
}

bool ActivityMap::touched(const Stamps& stamps, std::uint64_t offset, std::uint64_t length) const {
    const Stamp now = now_.load(std::memory_order_relaxed);
    const std::uint64_t last = (offset + length - 1) >> shift_;
    GPUNBD_ASSERT(length != 0 && last < stamps.size(), "a range that is shown lies in the export");
    for (std::uint64_t i = offset >> shift_; i <= last; ++i) {
        const Stamp stamp = stamps[i].load(std::memory_order_relaxed);
        if (stamp != 0 && (stamp == now || stamp == stamp_before(now))) return true;
    }
    return false;
}

bool ActivityMap::was_read(std::uint64_t offset, std::uint64_t length) const {
    const Cells* const cells = cells_.load(std::memory_order_acquire);
    return cells != nullptr && touched(cells->read, offset, length);
}

bool ActivityMap::was_written(std::uint64_t offset, std::uint64_t length) const {
    const Cells* const cells = cells_.load(std::memory_order_acquire);
    return cells != nullptr && touched(cells->written, offset, length);
}

}  // namespace gpunbd::server
