#include "storage/pages/volume.hpp"

#include <algorithm>
#include <bit>
#include <optional>

namespace gpunbd::storage {

namespace {

TableShape shape_of(const VolumeOptions& options, const Layout& layout,
                    const std::vector<Device*>& devices) {
    TableShape shape;
    shape.size = options.size;
    shape.page_size = options.page_size;
    shape.stripe_size = options.stripe_size;
    shape.provision = options.provision;
    for (std::uint32_t i = 0; i != devices.size(); ++i) {
        const PagePool::Slabs slabs =
            PagePool::slabs_for(layout.pages_on(i), options.page_size, false);
        shape.devices.push_back({.identity = devices[i]->info().identity,
                                 .pages = layout.pages_on(i),
                                 .slab_pages = slabs.pages,
                                 .slabs = slabs.slabs});
    }
    return shape;
}

}  // namespace

std::variant<std::unique_ptr<Volume>, Misfit> Volume::create(const VolumeOptions& options,
                                                             const std::vector<Device*>& devices,
                                                             const std::stop_token& stop) {
    std::vector<std::uint64_t> available;
    available.reserve(devices.size());
    for (const Device* device : devices) available.push_back(device->available());
    auto layout = lay_out(options, available);
    if (const auto* misfit = std::get_if<Misfit>(&layout)) return *misfit;
    std::unique_ptr<Volume> volume(
        new Volume(options, std::move(std::get<Layout>(layout)), devices));
    if (options.provision == Provision::full) {
        for (std::uint32_t i = 0; i != devices.size(); ++i) {
            if (volume->pools_[i]->fill(stop) == Status::ok) continue;
            return Misfit{.device = i,
                          .asked = volume->layout_.pages_on(i) * options.page_size,
                          .ran_out = true};
        }
    }
    return volume;
}

Volume::Volume(const VolumeOptions& options, Layout layout, const std::vector<Device*>& devices)
    : options_(options),
      layout_(std::move(layout)),
      page_shift_(static_cast<std::uint32_t>(std::countr_zero(options.page_size))),
      table_(shape_of(options, layout_, devices), false) {
    for (std::uint32_t i = 0; i < devices.size(); ++i) {
        pools_.push_back(
            std::make_unique<PagePool>(*devices[i], PagePool::Place{.device = i,
                                                                    .page_size = options.page_size,
                                                                    .pages = layout_.pages_on(i),
                                                                    .provision = options.provision,
                                                                    .slabs = table_.slabs(i)}));
    }
}

std::vector<Device*> Volume::devices() const {
    std::vector<Device*> devices;
    devices.reserve(pools_.size());
    for (const auto& pool : pools_) devices.push_back(&pool->device());
    return devices;
}

PageRef Volume::find(std::uint64_t page) const {
    const EntrySlot slot = table_.slot(page);
    PageEntry entry = slot.load(std::memory_order_acquire);
    while (entry.is_mapped()) {
        PagePool& pool = *pools_[entry.device()];
        pool.pin(entry.page());
        PageRef ref(pool, entry.page());
        // It may have been unmapped, and even reused, before the pin: then it is not ours.
        const PageEntry again = slot.load();
        if (again == entry) return ref;
        entry = again;
    }
    return {};
}

std::optional<Status> Volume::acquire(std::uint64_t page, PageRef& out, PageRequest& request,
                                      PageReturns& returns) {
    out = find(page);
    if (!out.hole()) return Status::ok;
    PagePool& pool = pool_for(page);
    if (pool.map_at_once(page, table_.slot(page), out)) return Status::ok;
    request.number = page;
    request.slot = table_.slot(page);
    returns.leaves(request);
    pool.ask(request);
    return std::nullopt;
}

Status Volume::map(std::uint64_t page, PageRef& out) {
    out = find(page);
    return out.hole() ? pool_for(page).map(page, table_.slot(page), out) : Status::ok;
}

void Volume::unmap(std::uint64_t page) {
    if (mapped(page)) pool_for(page).unmap(page, table_.slot(page));
}

Volume::Run Volume::run_at(std::uint64_t offset, std::uint64_t length) const {
    std::uint64_t page = page_of(offset);
    const std::uint32_t device = device_of(page);
    const std::uint64_t end = offset + length;
    std::uint64_t at = (page + 1) << page_shift_;
    while (at < end && device_of(page + 1) == device) {
        ++page;
        at = (page + 1) << page_shift_;
    }
    return {.device = device, .length = std::min(at, end) - offset};
}

std::uint64_t Volume::mapped_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& pool : pools_) bytes += pool->mapped_bytes();
    return bytes;
}

std::uint64_t Volume::retired_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& pool : pools_) bytes += pool->retired_bytes();
    return bytes;
}

std::uint64_t Volume::allocated_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& pool : pools_) bytes += pool->allocated_bytes();
    return bytes;
}

}  // namespace gpunbd::storage
