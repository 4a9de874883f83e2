#include "storage/pages/volume.hpp"

#include <algorithm>
#include <bit>
#include <optional>

namespace gpunbd::storage {

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
      pages_((options.size + options.page_size - 1) >> page_shift_),
      entries_(std::make_unique<std::atomic<Entry>[]>(pages_)) {
    for (std::uint32_t i = 0; i < devices.size(); ++i) {
        pools_.push_back(std::make_unique<PagePool>(*devices[i], options.page_size,
                                                    layout_.pages_on(i), options.provision));
    }
}

std::vector<Device*> Volume::devices() const {
    std::vector<Device*> devices;
    devices.reserve(pools_.size());
    for (const auto& pool : pools_) devices.push_back(&pool->device());
    return devices;
}

PageRef Volume::find(std::uint64_t page) const {
    const std::atomic<Entry>& slot = entries_[page];
    Entry entry = slot.load(std::memory_order_acquire);
    while (!is_hole(entry)) {
        PagePool& pool = *pools_[pool_of(entry)];
        const PageIndex index = page_index_of(entry);
        pool.pin(index);
        PageRef ref(pool, index);
        // It may have been unmapped, and even reused, before the pin: then it is not ours.
        const Entry again = slot.load();
        if (again == entry) return ref;
        entry = again;
    }
    return {};
}

Status Volume::map(std::uint64_t page, PageRef& out) {
    out = find(page);
    if (!out.hole()) return Status::ok;
    const std::lock_guard lock(mapping_);
    out = find(page);
    if (!out.hole()) return Status::ok;
    const std::uint32_t number = layout_.device_of(page);
    PagePool& pool = *pools_[number];
    PageIndex index = 0;
    if (const Status status = give_page(page, pool, index); status != Status::ok) return status;
    pool.pin(index);
    out = PageRef(pool, index);
    mapped_pages_.fetch_add(1, std::memory_order_relaxed);
    entries_[page].store(entry_of(number, index), std::memory_order_release);
    return Status::ok;
}

Status Volume::give_page(std::uint64_t page, PagePool& pool, PageIndex& index) {
    if (const Entry left = -entries_[page].load(); left > 0) {
        index = page_index_of(left);
        if (const auto status = pool.take_back(index, page)) return *status;
    }
    return pool.take(index);
}

void Volume::unmap(std::uint64_t page) {
    if (!mapped(page)) return;
    std::atomic<Entry>& slot = entries_[page];
    pools_[layout_.device_of(page)]->retire(page, [&]() -> std::optional<PageIndex> {
        // Changed only here, under the pool's lock, and from a hole.
        const Entry entry = slot.load();
        if (is_hole(entry)) return std::nullopt;
        slot.store(-entry);
        mapped_pages_.fetch_sub(1, std::memory_order_relaxed);
        return page_index_of(entry);
    });
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
