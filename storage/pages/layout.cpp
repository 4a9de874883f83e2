#include "storage/pages/layout.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

Layout Layout::linear(std::vector<std::uint64_t> shares) {
    GPUNBD_ASSERT(!shares.empty(), "a layout has a device");
    Layout layout;
    layout.devices_ = static_cast<std::uint32_t>(shares.size());
    for (const std::uint64_t share : shares) {
        layout.pages_ += share;
        layout.bounds_.push_back(layout.pages_);
    }
    return layout;
}

Layout Layout::stripe(std::uint64_t pages, std::uint64_t unit, std::uint32_t devices) {
    GPUNBD_ASSERT(unit != 0 && devices != 0, "a stripe has at least a page of each device");
    Layout layout;
    layout.pages_ = pages;
    layout.unit_ = unit;
    layout.devices_ = devices;
    return layout;
}

std::uint32_t Layout::device_of(std::uint64_t page) const {
    if (devices_ == 1) return 0;
    if (unit_ != 0) return static_cast<std::uint32_t>(page / unit_ % devices_);
    const auto after = std::upper_bound(bounds_.begin(), bounds_.end(), page);
    // A volume that has grown has more pages, all on the last device.
    return std::min(static_cast<std::uint32_t>(after - bounds_.begin()), devices_ - 1);
}

std::uint64_t Layout::pages_on(std::uint32_t index) const {
    GPUNBD_ASSERT(index < devices_, "only a device of the layout has a share of its pages");
    if (unit_ == 0) return bounds_[index] - (index == 0 ? 0 : bounds_[index - 1]);
    const std::uint64_t round = unit_ * devices_;
    const std::uint64_t rest = pages_ % round;
    const std::uint64_t before = unit_ * index;
    return pages_ / round * unit_ + (rest > before ? std::min(rest - before, unit_) : 0);
}

}  // namespace gpunbd::storage
