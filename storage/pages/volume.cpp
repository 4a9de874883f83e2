#include "storage/pages/volume.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <limits>
#include <stdexcept>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

namespace {

// Without its devices.
TableShape shape_of(const VolumeOptions& options, const KeepOptions& keep) {
    return {.name = keep.name,
            .wanted = keep.wanted,
            .instance = keep.kept_parts != nullptr ? keep.instance : new_instance(),
            .made = std::time(nullptr),
            .size = options.size,
            .page_size = options.page_size,
            .stripe_size = options.stripe_size,
            .provision = options.provision,
            .devices = {}};
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

bool has_directory(const TableShape& shape) { return shape.devices.front().slabs != 0; }

// The member that was made first, which has the slab directory unless that is in a file of its own.
auto first_of(std::vector<KeptVolumes::Member>& members) {
    return std::ranges::max_element(members, {}, [](const KeptVolumes::Member& each) {
        return std::pair(has_directory(each.table.shape()), -each.table.shape().made);
    });
}

// The reason why the parts do not belong together; empty: they do.
std::string contradiction_in(const KeptVolumes& contents, const KeptVolumes::Member& first) {
    const TableShape& shape = first.table.shape();
    const SharedDirectory* const directory = contents.directory.get();
    const auto devices = static_cast<std::uint32_t>(shape.devices.size());
    if (directory != nullptr && directory->devices() != devices) {
        return fmt::format("its slab directory is for {} devices, and it has {}",
                           directory->devices(), devices);
    }
    const bool is_shared =
        contents.members.size() != 1 || !has_directory(shape) || first.table.size() != shape.size;
    for (std::uint32_t i = 0; is_shared && i != devices; ++i) {
        if (directory == nullptr || !directory->in_use(i)) return "its slab directory is missing";
    }
    for (std::uint32_t i = 0; directory != nullptr && i != devices; ++i) {
        const TableShape::DeviceShare& share = shape.devices[i];
        const std::uint32_t needed = slabs_for(share.pages, share.slab_pages);
        if (directory->in_use(i) && std::max(needed, share.slabs) > SharedDirectory::max_slabs) {
            return "its slab directory has no room for its slabs";
        }
    }
    for (const KeptVolumes::Member& each : contents.members) {
        TableShape own = each.table.shape();
        if (&each != &first && has_directory(own)) return "it has several slab directories";
        own.name = shape.name;
        own.wanted = shape.wanted;
        own.instance = shape.instance;
        own.made = shape.made;
        for (std::uint32_t i = 0; i != own.devices.size() && i != devices; ++i) {
            own.devices[i].slabs = shape.devices[i].slabs;
        }
        if (own != shape) return "it differs in shape from an export that it shares pages with";
    }
    return {};
}

}  // namespace

std::variant<std::unique_ptr<Volume>, CapacityError> Volume::create(
    const VolumeOptions& options, const std::vector<Device*>& devices, const std::stop_token& stop,
    const KeepOptions& keep, const std::vector<Spill>& spills) {
    std::vector<std::uint64_t> available;
    available.reserve(devices.size());
    for (Device* const device : devices) {
        available.push_back(options.may_exceed_memory
                                ? SlabBudget::unlimited
                                : device->available() + device->lenders().lendable());
    }
    auto fitted = lay_out(options, available);
    if (const auto* error = std::get_if<CapacityError>(&fitted)) return *error;
    auto& layout = std::get<Layout>(fitted);
    const bool is_kept = keep.kept_parts != nullptr;
    TableShape shape = shape_of(options, keep);
    shape.spills = static_cast<std::uint32_t>(spills.size());
    shape.is_cache = is_kept && options.memory != 0;
    shape.is_clone_of_cache = options.is_clone_of_cache;
    const auto add = [&](const Device& device, std::uint32_t home) {
        // See PageAllocator::pages_of_next_slab().
        const std::uint32_t spare = !spills.empty() || device.info().revocable != 0 ? 1 : 0;
        shape.devices.push_back(
            share_on(device, home, layout.pages_on(home), options.page_size, is_kept, spare));
    };
    for (std::uint32_t i = 0; i != devices.size(); ++i) add(*devices[i], i);
    for (const Spill& spill : spills) add(*spill.device, spill.home);
    PageTable table(std::move(shape), is_kept, 0, options.complete);
    if (is_kept && !keep.kept_parts->keep_table(table.descriptor())) {
        throw std::runtime_error("the supervisor does not keep its page table");
    }
    std::unique_ptr<Volume> volume(
        new Volume(std::move(table), std::move(layout), devices, spills, keep.kept_parts));
    volume->is_kept_ = is_kept;
    if (const auto full = volume->fill(stop)) {
        volume->abandon();
        return CapacityError{.device = *full,
                             .asked = volume->layout_.pages_on(*full) * options.page_size,
                             .ran_out = true};
    }
    return volume;
}

std::variant<std::unique_ptr<Volume>, std::string> Volume::take_over(
    PageTable table, const std::vector<Device*>& devices, Descriptors slabs,
    std::shared_ptr<KeptParts> kept_parts, bool quiesced, ImportedSlabs* imported,
    const std::vector<Spill>& spills) {
    KeptVolumes contents{.slabs = std::move(slabs)};
    contents.members.push_back({std::move(table), std::move(kept_parts)});
    auto taken = take_over(std::move(contents), devices, quiesced, imported, spills);
    if (auto* const reason = std::get_if<std::string>(&taken)) return std::move(*reason);
    return std::move(std::get<Volumes>(taken).front());
}

std::variant<Volume::Volumes, std::string> Volume::take_over(KeptVolumes contents,
                                                             const std::vector<Device*>& devices,
                                                             bool quiesced, ImportedSlabs* imported,
                                                             const std::vector<Spill>& spills) {
    GPUNBD_ASSERT(!contents.members.empty(), "kept contents have a table");
    for (const KeptVolumes::Member& each : contents.members) {
        if (!each.table.complete()) return std::string("they are incomplete");
    }
    const auto first = first_of(contents.members);
    if (std::string reason = contradiction_in(contents, *first); !reason.empty()) return reason;
    auto layout = layout_of(first->table.shape());
    if (!layout) return std::string("its layout is inconsistent");
    Volumes volumes(contents.members.size());
    auto& owner = volumes[static_cast<std::size_t>(first - contents.members.begin())];
    owner.reset(new Volume(std::move(first->table), std::move(*layout), devices, spills,
                           std::move(first->kept_parts), contents.directory));
    owner->is_kept_ = true;
    for (std::size_t i = 0; i != volumes.size(); ++i) {
        if (volumes[i] != nullptr) continue;
        KeptVolumes::Member& member = contents.members[i];
        volumes[i].reset(new Volume(*owner, std::move(member.table), std::move(member.kept_parts)));
        volumes[i]->is_kept_ = true;
        const auto shares = volumes[i]->pages_by_device(volumes[i]->pages());
        for (std::uint32_t j = 0; j != owner->pools_->size(); ++j) {
            owner->pools_->at(j).tables().add(volumes[i]->table_, shares[j]);
        }
    }
    for (const auto& volume : volumes) {
        if (quiesced) {
            volume->quiesce();
        } else {
            volume->kept_cache().set_handed_over(false);  // the source may have changed since
        }
        volume->drop_unusable();
    }
    const auto checked = check_entries(volumes);
    if (const auto* const reason = std::get_if<std::string>(&checked)) return *reason;
    const auto& entries = std::get<EntryCounts>(checked);
    try {
        std::string reason = owner->take_over(entries, contents.slabs, imported);
        if (!reason.empty()) {
            owner->abandon();
            return reason;
        }
    } catch (...) {
        owner->abandon();
        throw;
    }
    // The slabs change from here on, so nothing may fail.
    for (const auto& volume : volumes) volume->settle_entries(entries);
    for (std::uint32_t i = 0; i != owner->pools_->size(); ++i) {
        owner->pools_->at(i).take_over().commit(entries[i]);
    }
    return volumes;
}

std::string Volume::take_over(const EntryCounts& entries, Descriptors& slabs,
                              ImportedSlabs* imported) {
    for (std::uint32_t i = 0; i != pools_->size(); ++i) {
        const std::string reason =
            pools_->at(i).take_over().take_over(slabs[i], entries[i], imported);
        if (!reason.empty())
            return fmt::format("on {}: {}", pools_->at(i).device().info().id, reason);
    }
    for (const auto& [device, left] : slabs) {
        for (const auto& [number, descriptor] : left) kept_parts_->drop(device, number);
    }
    // The process that made the volume may have died before all slabs were allocated.
    const auto full = fill({});
    if (!full) return {};
    return fmt::format("on {}: not enough memory for the rest of it",
                       pools_->at(*full).device().info().id);
}

std::optional<std::uint32_t> Volume::fill(const std::stop_token& stop) {
    if (shape().provision != Provision::full) return std::nullopt;
    for (std::uint32_t i = 0; i != layout_.devices(); ++i) {
        if (pools_->at(i).memory().fill(stop) != Status::ok) return i;
    }
    return std::nullopt;
}

void Volume::abandon() noexcept {
    for (const auto& pool : *pools_) pool->take_over().abandon();
}

Volume::Volume(PageTable table, Layout layout, const std::vector<Device*>& devices,
               const std::vector<Spill>& spills, std::shared_ptr<KeptParts> kept_parts,
               const std::shared_ptr<const SharedDirectory>& directory)
    : kept_parts_(std::move(kept_parts)),
      table_(std::move(table)),
      layout_(std::move(layout)),
      page_size_(table_.shape().page_size),
      page_shift_(static_cast<std::uint32_t>(std::countr_zero(page_size_))),
      division_(page_size_) {
    std::vector<TableShape::DeviceShare> shares = shape().devices;
    if (directory != nullptr) {
        for (const TableShape::DeviceShare& each : directory->added()) shares.push_back(each);
    }
    pools_ = std::make_shared<PoolList>(static_cast<std::uint32_t>(shares.size()) + room_for_pools,
                                        directory);
    GPUNBD_ASSERT(devices.size() == layout_.devices(), "each part of a layout has its device");
    GPUNBD_ASSERT(devices.size() + spills.size() <= shares.size(),
                  "the records of a volume name each of its devices");
    const auto add = [&](Device& device, SlabBudget* budget) {
        const std::uint32_t index = pools_->size();
        pools_->add(make_pool(device, index, shares[index], budget, directory));
        pools_->at(index).tables().add(table_, shares[index].pages);
    };
    for (Device* const device : devices) add(*device, nullptr);
    std::vector<PagePool::Spills> spills_of(devices.size());
    for (const Spill& spill : spills) {
        GPUNBD_ASSERT(spill.home < devices.size(),
                      "spill memory belongs to a device of the layout");
        add(*spill.device, spill.budget);
        spills_of[spill.home].push_back(&pools_->at(pools_->size() - 1));
    }
    for (std::uint32_t i = 0; i != devices.size(); ++i) {
        pools_->at(i).set_spills(std::move(spills_of[i]));
    }
    if (size() != shape().size) set_shares(pages_by_device(pages()));
}

std::variant<Volume::EntryCounts, std::string> Volume::check_entries(const Volumes& volumes) {
    const Volume& any = *volumes.front();
    EntryCounts counts;
    std::vector<std::vector<std::uint64_t>> numbers;  // of the pages that are counted
    for (const auto& pool : *any.pools_) {
        counts.emplace_back(pool->memory().slabs().page_numbers());
        numbers.emplace_back(volumes.size() == 1 ? 0 : pool->memory().slabs().page_numbers());
    }
    const auto longest = std::ranges::max_element(volumes, {}, &Volume::pages);
    for (std::uint64_t page = 0; page != (*longest)->pages(); ++page) {
        for (const auto& volume : volumes) {
            if (page >= volume->pages()) continue;
            const PageEntry entry = volume->table_.slot(page).load();
            if (!entry.is_known()) return fmt::format("page {} is in an unknown state", page);
            if (!entry.is_mapped()) continue;
            const std::uint32_t device = entry.device();
            if (device >= any.pools_->size() ||
                any.pools_->at(device).memory().slabs().config().home !=
                    any.layout_.device_of(page) ||
                entry.page() >= counts[device].size()) {
                return fmt::format("page {} has an invalid location", page);
            }
            std::uint32_t& count = counts[device][entry.page()];
            if (count != 0 && (numbers[device].empty() || numbers[device][entry.page()] != page)) {
                return fmt::format("page {} has the same location as another page", page);
            }
            ++count;
            if (!numbers[device].empty()) numbers[device][entry.page()] = page;
        }
    }
    return counts;
}

void Volume::drop_unusable() {
    if (!shape().is_cache) return;
    const KeptCache marks = kept_cache();
    for (std::uint64_t page = 0; page != pages(); ++page) {
        const EntrySlot slot = table_.slot(page);
        const PageEntry entry = slot.load();
        if (!entry.is_known()) return;  // see check_entries()
        // Pages of another device, which has replaced a failed one, are gone.
        const bool is_usable = entry.is_mapped() && entry.device() == 0 && marks.usable(page) != 0;
        if (is_usable) continue;
        // A hole without marks takes no memory in the table.
        if (marks.unwritten(page) != 0) marks.remove_unwritten(page, ~Parts{0});
        if (entry.is_mapped()) slot.become(PageEntry());
    }
}

void Volume::set_parts(std::uint64_t page, Parts parts) {
    GPUNBD_ASSERT(source_ == nullptr, "parts are set before the volume has users");
    const PageEntry entry = table_.slot(page).load();
    PageStates& pages = pools_->at(entry.device()).memory().pages();
    pages.set_missing(entry.page(), division_.all() & ~parts);
}

void Volume::settle_entries(const EntryCounts& entries) {
    // What is beyond the end was dropped when the volume shrank.
    for (std::uint64_t page = pages(); page != table_.slots(); ++page) {
        const EntrySlot slot = table_.slot(page);
        if (slot.load() != PageEntry()) slot.become(PageEntry());
    }
    for (std::uint64_t page = 0; page != pages(); ++page) {
        const EntrySlot slot = table_.slot(page);
        const PageEntry entry = slot.load();
        if (entry.state() == PageEntry::State::retired) slot.become(PageEntry());
        if (!entry.is_writable() && !entry.is_moving()) continue;
        const bool is_shared = entries[entry.device()][entry.page()] > 1;
        slot.become(is_shared ? PageEntry::shared(entry.device(), entry.page())
                              : PageEntry::mapped(entry.device(), entry.page()));
    }
}

void Volume::set_complete() {
    const Lock serialized(pools_->cloning());
    table_.set_complete(true);
}

std::optional<std::string> Volume::set_incomplete() {
    const Lock serialized(pools_->cloning());
    if (table_.set_complete(false)) return {};
    return "its contents were made by an earlier gpunbd, which cannot restore them safely; restore "
           "into a new export";
}

void Volume::quiesce() {
    is_quiesced_ = true;
    if (cache_ != nullptr) cache_->pause();
    for (const auto& pool : *pools_) pool->quiesce();
}

void Volume::resume() {
    is_quiesced_ = false;
    kept_cache().set_handed_over(false);  // before anything changes
    for (const auto& pool : *pools_) pool->memory().resume();
    if (cache_ != nullptr) cache_->resume();
}

bool Volume::takeover_finished() const {
    return std::all_of(pools_->begin(), pools_->end(),
                       [](const auto& pool) { return pool->take_over().finished(); });
}

void Volume::finish_takeover() noexcept {
    for (const auto& pool : *pools_) pool->take_over().finish();
}

void Volume::start_provisioners() noexcept {
    for (const auto& pool : *pools_) pool->memory().provisioner().start();
}

std::vector<Volume::SlabCopy> Volume::copy_slabs() const {
    std::vector<SlabCopy> copies;
    for (std::uint32_t device = 0; device != pools_->size(); ++device) {
        for (PoolSlabs::Copy& copy : pools_->at(device).take_over().copy_slabs()) {
            copies.push_back({.device = device, .copy = std::move(copy)});
        }
    }
    return copies;
}

std::vector<Device*> Volume::devices() const {
    std::vector<Device*> devices;
    devices.reserve(pools_->size());
    for (const auto& pool : *pools_) devices.push_back(&pool->device());
    return devices;
}

template <Access access>
PageRef Volume::find(std::uint64_t page) const {
    const EntrySlot slot = table_.slot(page);
    PageEntry entry = slot.load(std::memory_order_acquire);
    while (access == Access::read ? entry.is_mapped() : entry.is_writable()) {
        PagePool& pool = pools_->at(entry.device());
        const PageStates& pages = pool.memory().pages();
        const auto is_sole = [&] {
            return entry.is_writable() || (entry.is_shared() && !pages.is_shared(entry.page()));
        };
        const bool is_sent = access == Access::read && pages.sends_in_place() && is_sole();
        const Access pinned = is_sent ? Access::send : access;
        pool.memory().pin(entry.page(), pinned);
        PageRef ref(pool.memory(), entry.page(), pinned);
        // In this order: another volume may have the page alone once this one has lost it.
        const bool is_right = !is_sent || is_sole();
        // The page may have been unmapped and reused before it was pinned.
        const PageEntry again = slot.load();
        if (again == entry && is_right) return ref;
        entry = again;
    }
    return {};
}

PageRef Volume::find(std::uint64_t page) const { return find<Access::read>(page); }

PageRef Volume::find(std::uint64_t page, Parts parts) const {
    PageRef out = find(page);
    if (out.hole()) return source_ != nullptr ? source_->find(page, parts) : PageRef();
    if (out.lacks(parts)) out.reset();
    return out;
}

PageRef Volume::find_at(std::uint64_t offset, std::uint64_t length) const {
    const std::uint64_t page = page_of(offset);
    return source_ == nullptr ? find(page) : find(page, parts_at(offset, length));
}

Parts Volume::missing_parts(std::uint64_t page) const {
    const PageEntry entry = table_.slot(page).load(std::memory_order_acquire);
    if (!entry.is_mapped()) return division_.all();
    return pools_->at(entry.device()).memory().pages().missing(entry.page());
}

std::optional<Status> Volume::acquire(std::uint64_t page, PageRef& out, PageRequest& request,
                                      PageCompletions& completions) {
    const EntrySlot slot = table_.slot(page);
    while (true) {
        out = find<Access::write>(page);
        const bool lacks_parts =
            cache_ != nullptr && request.parts != 0 && !out.hole() && out.lacks(request.parts);
        if (!out.hole() && !lacks_parts) return Status::ok;
        out.reset();
        const PageEntry entry = slot.load();
        if (lacks_parts || (!entry.is_mapped() && in_source(page))) {
            request.number = page;
            completions.begin(request);
            source_->map(request);
            return std::nullopt;
        }
        if (!entry.is_mapped()) {
            PagePool& pool = pool_for(page);
            if (!pool.map_at_once(page, slot, out)) {
                request.copies = false;
                request.number = page;
                request.slot = slot;
                completions.begin(request);
                pool.memory().submit(request);
                return std::nullopt;
            }
            if (!out.hole()) return Status::ok;
        } else if (entry.is_shared()) {
            if (!pools_->at(entry.device()).claim(slot, out)) {
                request.copies = true;
                request.slot = slot;
                completions.begin(request);
                pool_for(page).memory().submit(request);
                return std::nullopt;
            }
            if (!out.hole()) return Status::ok;
        } else if (entry.is_moving()) {
            completions.begin(request);
            if (pools_->at(entry.device()).wait_for_move(slot, request)) return std::nullopt;
            completions.cancel(request);
        }
    }
}

Status Volume::map(std::uint64_t page, PageRef& out) {
    GPUNBD_ASSERT(source_ == nullptr, "the pages of a volume with a source are fetched");
    const EntrySlot slot = table_.slot(page);
    Status status = Status::ok;
    do {
        out = find<Access::write>(page);
        if (!out.hole()) break;
        const PageEntry entry = slot.load();
        if (entry.is_shared()) {
            const bool claimed = pools_->at(entry.device()).claim(slot, out);
            if (!claimed) status = pool_for(page).copy_shared(slot);
        } else {
            status = pool_for(page).map(page, slot, out);
        }
    } while (out.hole() && status == Status::ok);  // a page that is moving
    return status;
}

void Volume::set_source(std::unique_ptr<PageSource> source) {
    GPUNBD_ASSERT(source_ == nullptr && !shares_pages() && !has_spills(),
                  "a volume with a source has its pages for itself");
    GPUNBD_ASSERT(!is_kept_ || shape().has_fixed_size(),
                  "the table of a kept volume with a source has its marks");
    source_ = std::move(source);
    cache_ = source_->cache();
}

void Volume::unmap(std::uint64_t page) {
    const EntrySlot slot = table_.slot(page);
    for (PageEntry entry = slot.load(); entry.is_mapped(); entry = slot.load()) {
        if (pools_->at(entry.device()).unmap(page, slot) == PagePool::Replaced::done) return;
    }
}

bool Volume::unmap(std::uint64_t page, PageRequest& request, PageCompletions& completions) {
    const EntrySlot slot = table_.slot(page);
    if (source_ != nullptr) source_->zeroed(page);
    completions.begin(request);
    for (PageEntry entry = slot.load(); entry.is_mapped(); entry = slot.load()) {
        const PagePool::Replaced end = pools_->at(entry.device()).unmap(page, slot, &request);
        if (end == PagePool::Replaced::later) return false;
        if (end == PagePool::Replaced::done) break;
    }
    completions.cancel(request);
    return true;
}

Volume::Run Volume::run_at(std::uint64_t offset, std::uint64_t length) const {
    return run_of([this](std::uint64_t page) { return device_of(page); }, offset, length);
}

Volume::Run Volume::contents_run_at(std::uint64_t offset, std::uint64_t length) const {
    const auto property = [this](std::uint64_t page) -> std::uint32_t {
        return has_contents(page) ? 1 : 0;
    };
    return run_of(property, offset, length);
}

Volume::Run Volume::cached_run_at(std::uint64_t offset, std::uint64_t length) const {
    return run_of([this](std::uint64_t page) { return missing_parts(page) == 0 ? 1U : 0U; }, offset,
                  length);
}

Volume::Run Volume::changed_run_at(const Volume& older, std::uint64_t offset,
                                   std::uint64_t length) const {
    // A page that moves between the two loads seems to have changed.
    const auto differs = [&](std::uint64_t page) -> std::uint32_t {
        const PageEntry now = table_.slot(page).load(std::memory_order_acquire);
        PageEntry then;  // a hole beyond the end
        if (page < older.pages()) {
            then = older.table_.slot(page).load(std::memory_order_acquire);
        }
        return now.has_page_of(then) || (!now.is_mapped() && !then.is_mapped()) ? 0 : 1;
    };
    return run_of(differs, offset, length);
}

template <class Property>
Volume::Run Volume::run_of(Property property, std::uint64_t offset, std::uint64_t length) const {
    std::uint64_t page = page_of(offset);
    const std::uint32_t value = property(page);
    const std::uint64_t end = offset + length;
    GPUNBD_ASSERT(offset < end, "a run has a length, so that a walk over runs ends");
    std::uint64_t at = (page + 1) << page_shift_;
    while (at < end && property(page + 1) == value) {
        ++page;
        at = (page + 1) << page_shift_;
    }
    return {.device = value, .length = std::min(at, end) - offset};
}

std::uint64_t Volume::mapped_bytes() const {
    if (shares_pages()) {
        const Contents all = contents();
        return all.own + all.shared;
    }
    std::uint64_t bytes = 0;
    for (const auto& pool : *pools_) bytes += pool->memory().pages().mapped_pages() * page_size_;
    return bytes;
}

std::vector<Volume::Memory> Volume::memory() const {
    std::vector<Memory> out;
    out.reserve(pools_->size());
    const bool shared = shares_pages();
    for (const auto& pool : *pools_) {
        const PageAllocator::Usage usage = pool->memory().usage();
        Memory memory{.device = &pool->device(),
                      .mapped = pool->memory().pages().mapped_pages() * page_size_,
                      .allocated = usage.allocated,
                      .slabs = usage.slabs};
        if (shared) {
            memory.mapped = mapped_pages(static_cast<std::uint32_t>(out.size())) * page_size_;
            if (!pool->tables().is_first(table_)) memory.allocated = memory.slabs = 0;
        }
        out.push_back(memory);
    }
    return out;
}

std::uint64_t Volume::retired_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& pool : *pools_) bytes += pool->memory().usage().retired;
    return bytes;
}

std::uint64_t Volume::allocated_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& pool : *pools_) {
        if (pool->tables().is_first(table_)) bytes += pool->memory().usage().allocated;
    }
    return bytes;
}

}  // namespace gpunbd::storage
