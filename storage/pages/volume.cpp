#include "storage/pages/volume.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <limits>
#include <stdexcept>
#include <utility>

namespace gpunbd::storage {

namespace {

TableShape shape_of(const VolumeOptions& options, const Layout& layout,
                    const std::vector<Device*>& devices, const Retention& retention) {
    TableShape shape{
        .name = retention.name,
        .wanted = retention.wanted,
        .instance = retention.retainer != nullptr ? retention.instance : new_instance(),
        .made = std::time(nullptr),
        .size = options.size,
        .page_size = options.page_size,
        .stripe_size = options.stripe_size,
        .provision = options.provision,
        .devices = {}};
    for (std::uint32_t i = 0; i != devices.size(); ++i) {
        const std::uint64_t pages = layout.pages_on(i);
        const std::uint32_t slab_pages =
            PagePool::slab_pages_for(pages, options.page_size, retention.retainer != nullptr);
        shape.devices.push_back({.identity = devices[i]->info().identity,
                                 .pages = pages,
                                 .slab_pages = slab_pages,
                                 .slabs = PagePool::slabs_for(pages, slab_pages)});
    }
    return shape;
}

// The layout with which the volume was made, whatever the devices have available now. Empty if the
// shape is contradictory.
std::optional<Layout> layout_of(const TableShape& shape) {
    const auto devices = static_cast<std::uint32_t>(shape.devices.size());
    std::vector<std::uint64_t> shares;
    shares.reserve(devices);
    for (const TableShape::DeviceShare& device : shape.devices) shares.push_back(device.pages);
    if (shape.stripe_size == 0) return Layout::linear(std::move(shares));
    const std::uint64_t unit = shape.stripe_size / shape.page_size;
    if (unit > std::numeric_limits<std::uint64_t>::max() / devices) return std::nullopt;
    Layout layout = Layout::stripe(shape.pages(), unit, devices);
    for (std::uint32_t i = 0; i != devices; ++i) {
        if (layout.pages_on(i) != shares[i]) return std::nullopt;
    }
    return layout;
}

}  // namespace

std::variant<std::unique_ptr<Volume>, Misfit> Volume::create(const VolumeOptions& options,
                                                             const std::vector<Device*>& devices,
                                                             const std::stop_token& stop,
                                                             const Retention& retention) {
    std::vector<std::uint64_t> available;
    available.reserve(devices.size());
    for (const Device* device : devices) available.push_back(device->available());
    auto fitted = lay_out(options, available);
    if (const auto* misfit = std::get_if<Misfit>(&fitted)) return *misfit;
    auto& layout = std::get<Layout>(fitted);
    PageTable table(shape_of(options, layout, devices, retention), retention.retainer != nullptr);
    if (retention.retainer != nullptr && !retention.retainer->keep_table(table.descriptor())) {
        throw std::runtime_error("the supervisor does not keep its page table");
    }
    std::unique_ptr<Volume> volume(
        new Volume(std::move(table), std::move(layout), devices, retention.retainer));
    if (const auto full = volume->fill(stop)) {
        volume->abandon();
        return Misfit{.device = *full,
                      .asked = volume->layout_.pages_on(*full) * options.page_size,
                      .ran_out = true};
    }
    return volume;
}

std::variant<std::unique_ptr<Volume>, std::string> Volume::take_over(
    PageTable table, const std::vector<Device*>& devices, Descriptors slabs,
    std::shared_ptr<SlabRetainer> retainer, bool quiesced, ImportedSlabs* imported) {
    auto layout = layout_of(table.shape());
    if (!layout) return std::string("its layout is inconsistent");
    std::unique_ptr<Volume> volume(
        new Volume(std::move(table), std::move(*layout), devices, std::move(retainer)));
    if (quiesced) volume->quiesce();
    const auto checked = volume->check_entries();
    if (const auto* const reason = std::get_if<std::string>(&checked)) return *reason;
    const auto& mapped = std::get<MappedPages>(checked);
    try {
        if (std::string reason = volume->adopt(mapped, slabs, imported); !reason.empty()) {
            volume->abandon();
            return reason;
        }
    } catch (...) {
        volume->abandon();
        throw;
    }
    // The slabs change from here on, so nothing may fail.
    volume->clear_retired_entries();
    for (std::uint32_t i = 0; i != devices.size(); ++i)
        volume->pools_[i]->commit_adoption(mapped[i]);
    return volume;
}

std::string Volume::adopt(const MappedPages& mapped, Descriptors& slabs, ImportedSlabs* imported) {
    for (std::uint32_t i = 0; i != pools_.size(); ++i) {
        const std::string reason = pools_[i]->adopt(slabs[i], mapped[i], imported);
        if (!reason.empty()) return fmt::format("on {}: {}", pools_[i]->device().info().id, reason);
    }
    for (const auto& [device, left] : slabs) {
        for (const auto& [number, descriptor] : left) retainer_->forget(device, number);
    }
    // The process that made the volume may have died before all slabs were allocated.
    const auto full = fill({});
    if (!full) return {};
    return fmt::format("on {}: not enough memory for the rest of it",
                       pools_[*full]->device().info().id);
}

std::optional<std::uint32_t> Volume::fill(const std::stop_token& stop) {
    if (shape().provision != Provision::full) return std::nullopt;
    for (std::uint32_t i = 0; i != pools_.size(); ++i) {
        if (pools_[i]->fill(stop) != Status::ok) return i;
    }
    return std::nullopt;
}

void Volume::abandon() noexcept {
    for (const auto& pool : pools_) pool->abandon();
}

Volume::Volume(PageTable table, Layout layout, const std::vector<Device*>& devices,
               std::shared_ptr<SlabRetainer> retainer)
    : retainer_(std::move(retainer)),
      table_(std::move(table)),
      layout_(std::move(layout)),
      size_(table_.shape().size),
      page_size_(table_.shape().page_size),
      page_shift_(static_cast<std::uint32_t>(std::countr_zero(page_size_))) {
    for (std::uint32_t i = 0; i < devices.size(); ++i) {
        const TableShape::DeviceShare& share = shape().devices[i];
        const PagePool::Config config{.device = i,
                                      .page_size = page_size_,
                                      .pages = share.pages,
                                      .provision = shape().provision,
                                      .slab_pages = share.slab_pages,
                                      .directory = table_.slabs(i),
                                      .retainer = retainer_.get()};
        pools_.push_back(std::make_unique<PagePool>(*devices[i], config));
    }
}

std::variant<Volume::MappedPages, std::string> Volume::check_entries() const {
    MappedPages used;
    for (const auto& pool : pools_) used.emplace_back(pool->page_numbers());
    for (std::uint64_t page = 0; page != shape().pages(); ++page) {
        const PageEntry entry = table_.slot(page).load();
        if (entry.state() > PageEntry::State::retired) {
            return fmt::format("page {} is in an unknown state", page);
        }
        if (!entry.is_mapped()) continue;
        if (entry.device() != layout_.device_of(page) ||
            entry.page() >= used[entry.device()].size()) {
            return fmt::format("page {} has an invalid location", page);
        }
        auto taken = used[entry.device()][entry.page()];
        if (taken) return fmt::format("page {} has the same location as another page", page);
        taken = true;
    }
    return used;
}

void Volume::clear_retired_entries() {
    for (std::uint64_t page = 0; page != shape().pages(); ++page) {
        const EntrySlot slot = table_.slot(page);
        if (slot.load().state() == PageEntry::State::retired) slot.store(PageEntry());
    }
}

void Volume::quiesce() {
    for (const auto& pool : pools_) pool->quiesce();
}

void Volume::resume() {
    for (const auto& pool : pools_) pool->resume();
}

bool Volume::takeover_finished() const {
    return std::all_of(pools_.begin(), pools_.end(),
                       [](const auto& pool) { return pool->adoption_finished(); });
}

void Volume::finish_takeover() noexcept {
    for (const auto& pool : pools_) pool->finish_adoption();
}

void Volume::start_provisioners() noexcept {
    for (const auto& pool : pools_) pool->start_provisioner();
}

std::vector<Volume::SlabCopy> Volume::copy_slabs() const {
    std::vector<SlabCopy> copies;
    for (std::uint32_t device = 0; device != pools_.size(); ++device) {
        for (PagePool::SlabCopy& copy : pools_[device]->copy_slabs()) {
            copies.push_back({.device = device, .copy = std::move(copy)});
        }
    }
    return copies;
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
        // The page may have been unmapped and reused before it was pinned.
        const PageEntry again = slot.load();
        if (again == entry) return ref;
        entry = again;
    }
    return {};
}

std::optional<Status> Volume::acquire(std::uint64_t page, PageRef& out, PageRequest& request,
                                      PageCompletions& completions) {
    out = find(page);
    if (!out.hole()) return Status::ok;
    PagePool& pool = pool_for(page);
    if (pool.map_at_once(page, table_.slot(page), out)) return Status::ok;
    request.number = page;
    request.slot = table_.slot(page);
    completions.begin(request);
    pool.submit(request);
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

std::vector<Volume::Memory> Volume::memory() const {
    std::vector<Memory> out;
    out.reserve(pools_.size());
    for (const auto& pool : pools_) {
        out.push_back({.device = &pool->device(),
                       .mapped = pool->mapped_bytes(),
                       .allocated = pool->allocated_bytes(),
                       .slabs = pool->allocated_slabs()});
    }
    return out;
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
