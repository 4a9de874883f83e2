// How a volume grows and shrinks.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

// The pages of each device of the layout for so many pages.
std::vector<std::uint64_t> shares_for(const TableShape& shape, std::uint64_t pages) {
    const std::uint32_t devices = shape.layout_devices();
    std::vector<std::uint64_t> shares;
    if (shape.stripe_size != 0) {
        const Layout layout = Layout::stripe(pages, shape.stripe_size / shape.page_size, devices);
        for (std::uint32_t i = 0; i != devices; ++i) shares.push_back(layout.pages_on(i));
        return shares;
    }
    std::uint64_t left = pages;
    for (std::uint32_t i = 0; i + 1 != devices; ++i) {
        shares.push_back(std::min(left, shape.devices[i].pages));
        left -= shares.back();
    }
    shares.push_back(left);
    return shares;
}

}  // namespace

std::vector<std::uint64_t> Volume::pages_by_device(std::uint64_t pages) const {
    const std::vector<std::uint64_t> shares = shares_for(shape(), pages);
    std::vector<std::uint64_t> out;
    // Spill memory takes all pages of its device.
    for (const auto& pool : *pools_) out.push_back(shares[pool->memory().slabs().config().home]);
    return out;
}

bool Volume::is_hole_from(std::uint64_t offset) const {
    for (std::uint64_t page = (offset + page_size_ - 1) >> page_shift_; page < pages(); ++page) {
        if (mapped(page)) return false;
    }
    return true;
}

void Volume::set_shares(const std::vector<std::uint64_t>& pages_on) {
    for (std::uint32_t i = 0; i != pools_->size(); ++i)
        pools_->at(i).tables().resize(table_, pages_on[i]);
}

std::string Volume::resize(std::uint64_t size, const std::stop_token& stop,
                           std::uint64_t configured) {
    const Lock serialized(pools_->cloning());
    if (!complete()) return "its contents are being made; try again later";
    if (source_ != nullptr) return "its size is that of its origin";
    if (!table_.can_resize()) {
        return "its contents were made by an earlier gpunbd, and their size is fixed; save them, "
               "and restore them into a new export";
    }
    const std::uint64_t old_pages = pages();
    const bool shrinks = size < this->size();
    if (shrinks && offset_in_page(size) != 0) {
        return fmt::format("a smaller size has to be a multiple of the page size of {} bytes",
                           page_size_);
    }
    const std::uint64_t new_pages = (size + page_size_ - 1) >> page_shift_;
    const std::vector<std::uint64_t> shares = pages_by_device(new_pages);
    const std::vector<std::uint64_t> old_shares = pages_by_device(old_pages);
    for (std::uint32_t i = 0; i != layout_.devices() && !shrinks; ++i) {
        GPUNBD_ASSERT(shares[i] >= old_shares[i],
                      "no device has fewer pages of a volume that has grown");
        const std::uint64_t more = (shares[i] - old_shares[i]) * page_size_;
        const Device& device = pools_->at(i).device();
        if (more > device.available()) {
            return fmt::format("{} more bytes do not fit on {}, which has {} available", more,
                               device.info().id, device.available());
        }
    }
    // The directory in the table has room for the slabs of the first size only.
    if (kept_parts_ != nullptr) {
        if (std::string why = share_directory(); !why.empty()) return why;
    }
    if (!table_.make_room(size)) return "its page table has no room for this size";
    if (shrinks) {
        table_.set_configured_size(configured);
        table_.set_size(size);
        for (std::uint64_t page = new_pages; page != old_pages; ++page) unmap(page);
        set_shares(shares);
        return {};
    }
    // A write that began before the volume had shrunk may have mapped a page.
    for (std::uint64_t page = old_pages; page < new_pages; ++page) unmap(page);
    set_shares(shares);
    if (const auto full = fill(stop)) {
        set_shares(old_shares);
        return fmt::format("{} has no memory for it, which provision: full needs",
                           pools_->at(*full).device().info().id);
    }
    table_.set_configured_size(configured);
    table_.set_size(size);
    return {};
}

}  // namespace gpunbd::storage
