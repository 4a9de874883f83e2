// How volumes share pages.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <thread>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

using Clock = std::chrono::steady_clock;

// How long a clone waits for clients that are writing, before it copies the pages.
constexpr std::chrono::milliseconds patience{2};
constexpr std::chrono::seconds patience_without_memory{1};
constexpr std::chrono::microseconds poll_interval{20};

// Drops the settled numbers until none is left, or for so long.
template <typename IsSettled>
void wait_until_settled(std::vector<std::uint64_t>& numbers, const IsSettled& is_settled) {
    const auto deadline = Clock::now() + patience;
    while (std::erase_if(numbers, is_settled), !numbers.empty() && Clock::now() < deadline) {
        std::this_thread::sleep_for(poll_interval);
    }
}

}  // namespace

Volume::Volume(const Volume& source, PageTable table, std::shared_ptr<KeptParts> kept_parts)
    : kept_parts_(std::move(kept_parts)),
      table_(std::move(table)),
      layout_(source.layout_),
      page_size_(source.page_size_),
      page_shift_(source.page_shift_),
      division_(source.division_),
      pools_(source.pools_) {}

// The last volume leaves its pages to the destructors of the pools, which release whole slabs.
Volume::~Volume() {
    source_.reset();  // it maps pages
    const bool ends = !outlives_process();
    if (ends && shares_pages()) {
        for (std::uint64_t page = 0; page != table_.slots(); ++page) unmap(page);
    }
    // Not while spill memory is added, which would not see that the table is gone.
    const Lock serialized(pools_->cloning());
    for (const auto& pool : *pools_) pool->tables().remove(table_, ends);
}

std::variant<std::unique_ptr<Volume>, std::string> Volume::clone(
    const KeepOptions& keep, std::optional<std::uint64_t> wanted) {
    const bool keeps = keep.kept_parts != nullptr;
    if (keeps != outlives_process()) {
        return std::string(keeps ? "its contents are not kept, so those of a clone cannot be kept"
                                 : "its contents are kept, so those of a clone have to be kept");
    }
    std::unique_ptr<Volume> out;  // its destructor locks the mutex
    const Lock serialized(pools_->cloning());
    if (!complete()) return std::string("its contents are being made");
    if (source_ != nullptr || shape().has_fixed_size()) {
        return std::string(
            "a part of its contents is in an origin; only the export of the origin has clones");
    }
    if (wanted && *wanted < size()) {
        return fmt::format("its size of {} bytes is less than the {} bytes of its source", *wanted,
                           size());
    }
    try {
        if (std::string why = keeps ? share_directory() : ""; !why.empty()) return why;
        // All tables have the layout of the first one.
        TableShape of_clone = shape();
        for (TableShape::DeviceShare& each : of_clone.devices) {
            if (keeps) each.slabs = 0;  // they are in the shared directory
        }
        of_clone.name = keep.name;
        of_clone.wanted = keep.wanted;
        of_clone.instance = keeps ? keep.instance : new_instance();
        of_clone.made = std::time(nullptr);
        out.reset(new Volume(*this, PageTable(std::move(of_clone), keeps, wanted.value_or(size())),
                             keep.kept_parts));
        const std::vector<std::uint64_t> shares = pages_by_device(out->pages());
        PagePool::InUse in_use;  // nothing may fail while clients wait
        in_use.written.reserve(pages());
        const bool sends = std::ranges::any_of(
            *pools_, [](const auto& pool) { return pool->device().sends_in_place(); });
        if (sends) in_use.sent.reserve(pages());
        for (std::uint32_t i = 0; i != pools_->size(); ++i) {
            pools_->at(i).tables().add(out->table_, shares[i]);
        }
        if (const auto full = out->fill({})) {
            return fmt::format(
                "{} has no memory for as many pages again, which provision: full needs",
                pools_->at(*full).device().info().id);
        }
        freeze();
        share_pages(*out, in_use);
        thaw();
        const Status status = settle(*out, in_use);
        if (status != Status::ok) {
            return std::string(status == Status::no_space
                                   ? "there is no memory for copies of the pages that clients use"
                                   : "a page that clients use could not be copied");
        }
        // Not before the table is complete: a process that takes it over sees one instant.
        if (keeps && !keep.kept_parts->keep_table(out->table_.descriptor())) {
            return std::string("the supervisor does not keep its page table");
        }
        out->is_kept_ = keeps;
        return out;
    } catch (const std::exception& error) {  // no memory for a table
        return std::string(error.what());
    }
}

// A table of a clone has no directory, and the one in the table of the first volume has no room.
std::string Volume::share_directory() {
    for (const TableShape::DeviceShare& each : shape().devices) {
        if (each.slabs <= SharedDirectory::max_slabs) continue;
        return fmt::format("it has up to {} slabs on {}, and kept pages are shared in at most {}",
                           each.slabs, each.identity, SharedDirectory::max_slabs);
    }
    std::shared_ptr<const SharedDirectory> directory = pools_->directory();
    if (directory == nullptr) {
        directory =
            std::make_shared<SharedDirectory>(static_cast<std::uint32_t>(shape().devices.size()));
        if (!kept_parts_->keep_directory(directory->descriptor())) {
            return "the supervisor does not keep its slab directory";
        }
    }
    pools_->move_directory(directory);
    return {};
}

void Volume::freeze() {
    for (const auto& pool : *pools_) pool->freeze();
}

void Volume::thaw() {
    for (const auto& pool : *pools_) pool->thaw();
}

void Volume::share_pages(const Volume& target, PagePool::InUse& in_use) {
    const std::uint64_t end = pages();
    for (std::uint64_t page = 0; page != end;) {
        const PageEntry entry = table_.slot(page).load();
        if (entry.is_mapped()) {
            page = pools_->at(entry.device()).share(table_, target.table_, page, end, in_use);
        } else {
            ++page;
        }
    }
}

Status Volume::settle(const Volume& target, PagePool::InUse& in_use) {
    const Status status = settle_written(target, in_use.written);
    return status == Status::ok ? settle_sent(target, in_use.sent) : status;
}

Status Volume::settle_written(const Volume& target, std::vector<std::uint64_t>& written) {
    const auto pool_of = [&](std::uint64_t page) -> PagePool& {
        return pools_->at(target.table_.slot(page).load().device());
    };
    const auto is_settled = [&](std::uint64_t page) {
        return pool_of(page).settle(table_, target.table_, page);
    };
    wait_until_settled(written, is_settled);
    Status status = Status::ok;
    for (const std::uint64_t page : written) {
        PagePool& pool = pool_of(page);
        if (status == Status::ok) {
            status = pool.copy_written(table_, target.table_, page, pool_for(page));
        }
        if (status != Status::ok) pool.cancel_sharing(table_, target.table_, page);
    }
    return status;
}

// No client waits for this. A client that is sent a page may be slow, so the clone does not wait
// for it either, if there is memory for a copy.
Status Volume::settle_sent(const Volume& target, std::vector<std::uint64_t>& sent) {
    const auto is_settled = [&](std::uint64_t page) {
        const EntrySlot slot = target.table_.slot(page);
        return !pools_->at(slot.load().device()).may_be_sent(slot);
    };
    const auto begin = Clock::now();
    wait_until_settled(sent, is_settled);
    while (!sent.empty()) {
        const EntrySlot slot = target.table_.slot(sent.back());
        if (is_settled(sent.back())) {
            sent.pop_back();
            continue;
        }
        const Status status =
            pools_->at(slot.load().device()).copy_sent(slot, pool_for(sent.back()));
        if (status == Status::ok) continue;  // the page may have moved to another pool
        if (Clock::now() >= begin + patience_without_memory) return status;
        std::this_thread::sleep_for(patience);
    }
    return Status::ok;
}

PageRef Volume::take_replacement(std::uint64_t page) {
    const PageEntry entry = table_.slot(page).load();
    if (in_source(page)) {
        PagePool& pool = taking_pool(page);
        return missing_parts(page) == 0 || pool.device().failed() ? PageRef()
                                                                  : pool.take_replacement();
    }
    if (!entry.is_shared() || !pools_->at(entry.device()).memory().pages().is_shared(entry.page()))
        return {};
    return pool_for(page).take_replacement();
}

bool Volume::replace(std::uint64_t page, const PageRef& by) {
    GPUNBD_ASSERT(!by.hole(), "a page number gets a page that its writer has filled");
    const EntrySlot slot = table_.slot(page);
    while (true) {
        const PageEntry entry = slot.load();
        PagePool& pool = entry.is_mapped() ? pools_->at(entry.device()) : pool_for(page);
        const PagePool::Replaced end = pool.replace(slot, by);
        if (end != PagePool::Replaced::moved_to_other_pool) return end == PagePool::Replaced::done;
    }
}

bool Volume::fill_hole(std::uint64_t page, const PageRef& by, Parts missing) {
    return pool_for(page).fill_hole(table_.slot(page), by, missing);
}

template <typename Call>
void Volume::for_each_mapped(Call call) const {
    const std::uint64_t end = pages();  // another thread may shrink the volume
    for (std::uint64_t page = 0; page != end; ++page) {
        const PageEntry entry = table_.slot(page).load(std::memory_order_acquire);
        if (entry.is_mapped()) call(entry);
    }
}

Volume::Contents Volume::contents() const {
    Contents out;
    for_each_mapped([&](PageEntry entry) {
        const bool is_shared = pools_->at(entry.device()).memory().pages().is_shared(entry.page());
        (is_shared ? out.shared : out.own) += page_size_;
    });
    return out;
}

std::uint64_t Volume::mapped_pages(std::uint32_t device) const {
    std::uint64_t pages = 0;
    for_each_mapped([&](PageEntry entry) { pages += entry.device() == device ? 1 : 0; });
    return pages;
}

}  // namespace gpunbd::storage
