// A volume is the address space of one export. Its page table maps page numbers to pages on its
// devices. An unmapped page is a hole and reads as zeroes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "storage/devices/page_completions.hpp"
#include "storage/pages/fit.hpp"
#include "storage/pages/layout.hpp"
#include "storage/pages/page_pool.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

struct VolumeOptions {
    std::uint64_t size = 0;             // bytes, not 0
    std::uint64_t page_size = 2 << 20;  // bytes, a power of two
    std::uint64_t stripe_size = 0;      // bytes, a multiple of page_size; 0: linear
    Provision provision = Provision::thin;
};

// Memory to which the pages of one device of a volume are moved when that device has to give memory
// back. The device and the budget outlive the volume.
struct Spill {
    std::uint32_t home = 0;  // the index of that device in the volume
    Device* device = nullptr;
    SlabBudget* budget = nullptr;  // shared by all volumes that use this memory
};

// How a volume is recorded so that it outlives the process.
struct Retention {
    std::string name;                                  // the name of the export
    std::string wanted;                                // TableShape::wanted
    InstanceId instance{};                             // new_instance()
    std::shared_ptr<SlabRetainer> retainer = nullptr;  // null: the volume ends with the process
};

class Volume {
 public:
    // The devices outlive the volume. A linear volume fills each device before it uses the next. If
    // `stop` is requested between two slabs, creation fails as if memory had run out. Throws
    // std::system_error if there is no memory for the table.
    static std::variant<std::unique_ptr<Volume>, Misfit> create(
        const VolumeOptions& options, const std::vector<Device*>& devices,
        const std::stop_token& stop = {}, const Retention& retention = {},
        const std::vector<Spill>& spills = {});
    // Takes over the table and the slabs of another process. `slabs` has their descriptors by
    // device and number. The retainer keeps these slabs already, and forgets those that are not in
    // the table. `devices` are those of the layout in table.shape(), and `spills` the others, in
    // their order. `quiesced`: as after quiesce(). `imported` may have some of the slabs already,
    // or be null. A text is the reason for a failure. After a failure or an exception, the table
    // and all slabs in it are unchanged, so that the caller can try again.
    using Descriptors = std::map<std::uint32_t, PagePool::Descriptors>;
    static std::variant<std::unique_ptr<Volume>, std::string> take_over(
        PageTable table, const std::vector<Device*>& devices, Descriptors slabs,
        std::shared_ptr<SlabRetainer> retainer, bool quiesced = false,
        ImportedSlabs* imported = nullptr, const std::vector<Spill>& spills = {});

    std::uint64_t size() const { return size_; }
    std::uint64_t page_size() const { return page_size_; }
    std::uint64_t page_of(std::uint64_t offset) const { return offset >> page_shift_; }
    std::uint64_t offset_in_page(std::uint64_t offset) const { return offset & (page_size_ - 1); }
    // The shape, also for another process, and the descriptor of the table, which may be empty.
    const TableShape& shape() const { return table_.shape(); }
    const OwnedFd& table_descriptor() const { return table_.descriptor(); }
    // The devices of the layout and of the spill memory, in the order of shape().devices.
    std::vector<Device*> devices() const;
    // Until resume(), slabs are neither allocated nor released ahead of need. Waits for work in
    // progress. So no slab changes while no request needs a page.
    void quiesce();
    void resume();
    // take_over() leaves mapping slabs into the CPU's address space for later: false until it is
    // done.
    bool takeover_finished() const;
    // Lets the provisioners do that from now on.
    void finish_takeover() noexcept;
    // Copies of the slabs' descriptors, for another process. Throws std::system_error if a
    // descriptor cannot be copied.
    struct SlabCopy {
        std::uint32_t device = 0;
        PagePool::SlabCopy copy;
    };
    std::vector<SlabCopy> copy_slabs() const;
    // The number of devices over which a long request is spread at a time.
    std::uint32_t width() const { return table_.shape().stripe_size != 0 ? layout_.devices() : 1; }

    // Starts threads ahead of need. If the system refuses one now, a later request tries again.
    void start_provisioners() noexcept;

    // The page behind page number `page`, pinned for reading, or a hole. Lock-free.
    PageRef find(std::uint64_t page) const;
    // Like find(), but pins the page for writing, and maps a page that reads as zeroes if there is
    // none. Does not block: if the device has to be called, or if the page is moving, returns
    // nothing and submits `request`. Its waiter is called when it may try again, or when
    // request.status is an error.
    std::optional<Status> acquire(std::uint64_t page, PageRef& out, PageRequest& request,
                                  PageCompletions& completions);
    // Like acquire(), but blocks.
    Status map(std::uint64_t page, PageRef& out);
    // Makes the page number a hole. The page is reused once it is not pinned.
    void unmap(std::uint64_t page);
    bool mapped(std::uint64_t page) const {
        return table_.slot(page).load(std::memory_order_acquire).is_mapped();
    }

    // A run of pages on one device, or of holes, that starts at `offset`. At most `length` bytes
    // long.
    struct Run {
        std::uint32_t device = 0;  // 1 + the index in devices(); 0: holes
        std::uint64_t length = 0;  // bytes
    };
    Run run_at(std::uint64_t offset, std::uint64_t length) const;

    // The pools by the index in devices(). Those of the layout know their spills.
    std::uint32_t layout_devices() const { return layout_.devices(); }
    PagePool& pool(std::uint32_t device) const { return *pools_[device]; }
    // For moving pages: the entry of page number `page`.
    EntrySlot slot(std::uint64_t page) const { return table_.slot(page); }

    std::uint64_t mapped_bytes() const;
    std::uint64_t allocated_bytes() const;
    // Memory of the volume on one device.
    struct Memory {
        const Device* device = nullptr;
        std::uint64_t mapped = 0;     // bytes
        std::uint64_t allocated = 0;  // bytes
        std::uint64_t slabs = 0;
    };
    std::vector<Memory> memory() const;  // in the order of devices()
    // Memory of pages that are unmapped but still pinned.
    std::uint64_t retired_bytes() const;

 private:
    // As in Run::device.
    std::uint32_t device_of(std::uint64_t page) const {
        const PageEntry entry = table_.slot(page).load(std::memory_order_acquire);
        return entry.is_mapped() ? entry.device() + 1 : 0;
    }
    PagePool& pool_for(std::uint64_t page) { return *pools_[layout_.device_of(page)]; }
    // Pins for this access. A page that is moving is not found for writing.
    template <Access access>
    PageRef find(std::uint64_t page) const;

    Volume(PageTable table, Layout layout, const std::vector<Device*>& devices,
           const std::vector<Spill>& spills, std::shared_ptr<SlabRetainer> retainer);

    // Provision::full: allocates all missing slabs. Returns the index of the device that has no
    // memory.
    std::optional<std::uint32_t> fill(const std::stop_token& stop);
    // Whether an entry maps the page, by device and page.
    using MappedPages = std::vector<std::vector<bool>>;
    // A text is the reason why an entry is invalid.
    std::variant<MappedPages, std::string> check_entries() const;
    // Returns an empty text, or the reason for a failure. After a failure or an exception, call
    // abandon().
    std::string adopt(const MappedPages& mapped, Descriptors& slabs, ImportedSlabs* imported);
    void abandon() noexcept;
    // Pins and moves of another process are gone: its retired pages are plain holes, and its moving
    // pages are where they were.
    void settle_entries();

    const std::shared_ptr<SlabRetainer> retainer_;  // outlives the pools, which call it
    PageTable table_;
    const Layout layout_;
    const std::uint64_t size_;       // bytes
    const std::uint64_t page_size_;  // bytes
    const std::uint32_t page_shift_;
    std::vector<std::unique_ptr<PagePool>> pools_;  // of the layout, then of the spill memory
};

}  // namespace gpunbd::storage
