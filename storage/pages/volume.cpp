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
                    const std::vector<Device*>& devices, const std::vector<Spill>& spills,
                    const Retention& retention) {
    TableShape shape{
        .name = retention.name,
        .wanted = retention.wanted,
        .instance = retention.retainer != nullptr ? retention.instance : new_instance(),
        .made = std::time(nullptr),
        .size = options.size,
        .page_size = options.page_size,
        .stripe_size = options.stripe_size,
        .provision = options.provision,
        .devices = {},
        .spills = static_cast<std::uint32_t>(spills.size())};
    // See PagePool::pages_of_next_slab().
    const std::uint32_t spare = spills.empty() ? 0 : 1;
    const auto add = [&](const Device& device, std::uint32_t home) {
        const std::uint64_t pages = layout.pages_on(home);
        const std::uint32_t slab_pages =
            PagePool::slab_pages_for(pages, options.page_size, retention.retainer != nullptr);
        shape.devices.push_back({.identity = device.info().identity,
                                 .pages = pages,
                                 .slab_pages = slab_pages,
                                 .slabs = PagePool::slabs_for(pages, slab_pages) + spare,
                                 .home = home});
    };
    for (std::uint32_t i = 0; i != devices.size(); ++i) add(*devices[i], i);
    for (const Spill& spill : spills) add(*spill.device, spill.home);
    return shape;
}

// The layout with which the volume was made, whatever the devices have available now. Empty if the
// shape is contradictory.
std::optional<Layout> layout_of(const TableShape& shape) {
    const std::uint32_t devices = shape.layout_devices();
    std::vector<std::uint64_t> shares;
    for (std::uint32_t i = 0; i != devices; ++i) shares.push_back(shape.devices[i].pages);
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
                                                             const Retention& retention,
                                                             const std::vector<Spill>& spills) {
    std::vector<std::uint64_t> available;
    available.reserve(devices.size());
    for (const Device* device : devices) available.push_back(device->available());
    auto fitted = lay_out(options, available);
    if (const auto* misfit = std::get_if<Misfit>(&fitted)) return *misfit;
    auto& layout = std::get<Layout>(fitted);
    PageTable table(shape_of(options, layout, devices, spills, retention),
                    retention.retainer != nullptr);
    if (retention.retainer != nullptr && !retention.retainer->keep_table(table.descriptor())) {
        throw std::runtime_error("the supervisor does not keep its page table");
    }
    std::unique_ptr<Volume> volume(
        new Volume(std::move(table), std::move(layout), devices, spills, retention.retainer));
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
    std::shared_ptr<SlabRetainer> retainer, bool quiesced, ImportedSlabs* imported,
    const std::vector<Spill>& spills) {
    auto layout = layout_of(table.shape());
    if (!layout) return std::string("its layout is inconsistent");
    std::unique_ptr<Volume> volume(
        new Volume(std::move(table), std::move(*layout), devices, spills, std::move(retainer)));
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
    volume->settle_entries();
    for (std::uint32_t i = 0; i != volume->pools_.size(); ++i) {
        volume->pools_[i]->commit_adoption(mapped[i]);
    }
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
    for (std::uint32_t i = 0; i != layout_.devices(); ++i) {
        if (pools_[i]->fill(stop) != Status::ok) return i;
    }
    return std::nullopt;
}

void Volume::abandon() noexcept {
    for (const auto& pool : pools_) pool->abandon();
}

Volume::Volume(PageTable table, Layout layout, const std::vector<Device*>& devices,
               const std::vector<Spill>& spills, std::shared_ptr<SlabRetainer> retainer)
    : retainer_(std::move(retainer)),
      table_(std::move(table)),
      layout_(std::move(layout)),
      size_(table_.shape().size),
      page_size_(table_.shape().page_size),
      page_shift_(static_cast<std::uint32_t>(std::countr_zero(page_size_))) {
    const auto add = [&](Device& device, SlabBudget* budget, bool is_spill) {
        const auto index = static_cast<std::uint32_t>(pools_.size());
        const TableShape::DeviceShare& share = shape().devices[index];
        const PagePool::Config config{.device = index,
                                      .page_size = page_size_,
                                      .pages = share.pages,
                                      .provision = is_spill ? Provision::thin : shape().provision,
                                      .slab_pages = share.slab_pages,
                                      .directory = table_.slabs(index),
                                      .retainer = retainer_.get(),
                                      .budget = budget,
                                      .is_spill = is_spill,
                                      .has_spare_slab = !spills.empty()};
        pools_.push_back(std::make_unique<PagePool>(device, config));
    };
    for (Device* const device : devices) add(*device, nullptr, false);
    std::vector<std::vector<PagePool*>> spills_of(devices.size());
    for (const Spill& spill : spills) {
        add(*spill.device, spill.budget, true);
        spills_of[spill.home].push_back(pools_.back().get());
    }
    for (std::uint32_t i = 0; i != devices.size(); ++i) {
        pools_[i]->set_spills(std::move(spills_of[i]));
    }
}

std::variant<Volume::MappedPages, std::string> Volume::check_entries() const {
    MappedPages used;
    for (const auto& pool : pools_) used.emplace_back(pool->page_numbers());
    for (std::uint64_t page = 0; page != shape().pages(); ++page) {
        const PageEntry entry = table_.slot(page).load();
        if (entry.state() > PageEntry::State::moving) {
            return fmt::format("page {} is in an unknown state", page);
        }
        if (!entry.is_mapped()) continue;
        if (entry.device() >= pools_.size() ||
            shape().devices[entry.device()].home != layout_.device_of(page) ||
            entry.page() >= used[entry.device()].size()) {
            return fmt::format("page {} has an invalid location", page);
        }
        auto taken = used[entry.device()][entry.page()];
        if (taken) return fmt::format("page {} has the same location as another page", page);
        taken = true;
    }
    return used;
}

void Volume::settle_entries() {
    for (std::uint64_t page = 0; page != shape().pages(); ++page) {
        const EntrySlot slot = table_.slot(page);
        const PageEntry entry = slot.load();
        if (entry.state() == PageEntry::State::retired) slot.store(PageEntry());
        if (entry.is_moving()) slot.store(PageEntry::mapped(entry.device(), entry.page()));
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

template <Access access>
PageRef Volume::find(std::uint64_t page) const {
    const EntrySlot slot = table_.slot(page);
    PageEntry entry = slot.load(std::memory_order_acquire);
    while (entry.is_mapped() && (access == Access::read || !entry.is_moving())) {
        PagePool& pool = *pools_[entry.device()];
        pool.pin(entry.page(), access);
        PageRef ref(pool, entry.page(), access);
        // The page may have been unmapped and reused before it was pinned.
        const PageEntry again = slot.load();
        if (again == entry) return ref;
        entry = again;
    }
    return {};
}

PageRef Volume::find(std::uint64_t page) const { return find<Access::read>(page); }

std::optional<Status> Volume::acquire(std::uint64_t page, PageRef& out, PageRequest& request,
                                      PageCompletions& completions) {
    const EntrySlot slot = table_.slot(page);
    while (true) {
        out = find<Access::write>(page);
        if (!out.hole()) return Status::ok;
        const PageEntry entry = slot.load();
        if (!entry.is_mapped()) {
            PagePool& pool = pool_for(page);
            if (!pool.map_at_once(page, slot, out)) {
                request.number = page;
                request.slot = slot;
                completions.begin(request);
                pool.submit(request);
                return std::nullopt;
            }
            if (!out.hole()) return Status::ok;
        } else if (entry.is_moving()) {
            completions.begin(request);
            if (pools_[entry.device()]->wait_for_move(slot, request)) return std::nullopt;
            completions.cancel(request);
        }
    }
}

Status Volume::map(std::uint64_t page, PageRef& out) {
    Status status = Status::ok;
    do {
        out = find<Access::write>(page);
        if (out.hole()) status = pool_for(page).map(page, table_.slot(page), out);
    } while (out.hole() && status == Status::ok);  // a page that is moving
    return status;
}

void Volume::unmap(std::uint64_t page) {
    const EntrySlot slot = table_.slot(page);
    for (PageEntry entry = slot.load(); entry.is_mapped(); entry = slot.load()) {
        if (pools_[entry.device()]->unmap(page, slot)) return;
    }
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
