#include "storage/pages/layout.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

std::variant<Layout, CapacityError> lay_out_stripe(const VolumeOptions& options,
                                                   std::uint64_t pages,
                                                   const std::vector<std::uint64_t>& available) {
    Layout layout = Layout::stripe(pages, options.stripe_size / options.page_size,
                                   static_cast<std::uint32_t>(available.size()));
    const std::uint64_t min = *std::min_element(available.begin(), available.end());
    for (std::uint32_t i = 0; i < available.size(); ++i) {
        const std::uint64_t share = layout.pages_on(i) * options.page_size;
        if (share <= available[i]) continue;
        return CapacityError{
            .device = i,
            .asked = share,
            .available = available[i] / options.page_size * options.page_size,
            .largest = min / options.stripe_size * options.stripe_size * available.size()};
    }
    return layout;
}

}  // namespace

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

std::variant<Layout, CapacityError> lay_out(const VolumeOptions& options,
                                            const std::vector<std::uint64_t>& available) {
    GPUNBD_ASSERT(options.stripe_size % options.page_size == 0,
                  "a stripe consists of whole pages, each on one device");
    GPUNBD_ASSERT(options.memory == 0 || (available.size() == 1 && options.stripe_size == 0),
                  "a volume with a source has one device");
    const std::uint64_t bytes_in_memory = options.memory != 0 ? options.memory : options.size;
    const std::uint64_t pages = (bytes_in_memory + options.page_size - 1) / options.page_size;
    if (options.stripe_size != 0) return lay_out_stripe(options, pages, available);
    std::vector<std::uint64_t> shares;
    std::uint64_t left = pages;
    std::uint64_t room = 0;
    for (const std::uint64_t bytes : available) {
        const std::uint64_t fits = bytes / options.page_size;
        room += fits * options.page_size;
        shares.push_back(std::min(left, fits));
        left -= shares.back();
    }
    if (left == 0) return Layout::linear(std::move(shares));
    return CapacityError{.asked = bytes_in_memory, .available = room, .largest = room};
}

}  // namespace gpunbd::storage
