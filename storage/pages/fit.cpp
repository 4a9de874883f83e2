#include "storage/pages/fit.hpp"

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

std::variant<Layout, CapacityError> lay_out(const VolumeOptions& options,
                                            const std::vector<std::uint64_t>& available) {
    GPUNBD_ASSERT(options.stripe_size % options.page_size == 0,
                  "a stripe consists of whole pages, each on one device");
    const std::uint64_t pages = (options.size + options.page_size - 1) / options.page_size;
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
    return CapacityError{.asked = options.size, .available = room, .largest = room};
}

}  // namespace gpunbd::storage
