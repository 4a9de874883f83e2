// A volume is the address space of one export. Its page table maps page numbers to pages on its
// devices. An unmapped page is a hole and reads as zeroes. A clone has a table of its own and
// shares the page pools.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "storage/base/atomic.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/pages/layout.hpp"
#include "storage/pages/page_pool.hpp"
#include "storage/pages/page_source.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pool_list.hpp"

namespace gpunbd::storage {

struct VolumeOptions {
    std::uint64_t size = 0;             // bytes, not 0
    std::uint64_t page_size = 2 << 20;  // bytes, a power of two
    std::uint64_t stripe_size = 0;      // bytes, a multiple of page_size; 0: linear
    // Of a volume on one device that gets a PageSource: the most bytes that are in memory at once.
    // 0: all of it.
    std::uint64_t memory = 0;
    bool may_exceed_memory = false;  // the devices may have less than the volume may take
    bool is_clone_of_cache = false;  // on one device, that of the cache
    Provision provision = Provision::thin;
    bool complete = true;  // false: until Volume::set_complete()
};

// Memory to which the pages of one device of a volume are moved when that device has to give memory
// back. The device and the budget outlive the volume.
struct Spill {
    std::uint32_t home = 0;  // the index of that device in the volume
    Device* device = nullptr;
    SlabBudget* budget = nullptr;  // shared by all volumes that use this memory
};

// How a volume is recorded so that it outlives the process.
struct KeepOptions {
    std::string name = {};                            // the name of the export
    std::string wanted = {};                          // TableShape::wanted
    InstanceId instance{};                            // new_instance()
    std::shared_ptr<KeptParts> kept_parts = nullptr;  // null: the volume ends with the process
};

// What an earlier process has left of a kept volume and of those that share pages with it.
struct KeptVolumes {
    using Descriptors = std::map<std::uint32_t, PoolTakeOver::Descriptors>;  // by device
    struct Member {
        PageTable table;
        std::shared_ptr<KeptParts> kept_parts;  // keeps the table and the slabs already
    };
    std::vector<Member> members = {};                            // not empty
    std::shared_ptr<const SharedDirectory> directory = nullptr;  // null: in the only table
    Descriptors slabs = {};                                      // by number
};

class Volume {
 public:
    // The devices outlive the volume. A linear volume fills each device before it uses the next. If
    // `stop` is requested between two slabs, creation fails as if memory had run out. Throws
    // std::system_error if there is no memory for the table.
    static std::variant<std::unique_ptr<Volume>, CapacityError> create(
        const VolumeOptions& options, const std::vector<Device*>& devices,
        const std::stop_token& stop = {}, const KeepOptions& keep = {},
        const std::vector<Spill>& spills = {});
    // Takes over the contents of another process, and forgets slabs that are not in their
    // directory. `devices` are those of the layout in table.shape(), and `spills` the others and
    // those that were added to the directory, in their order. `quiesced`: as after quiesce().
    // `imported` may have some of the slabs already, or be null. The volumes are in the order of
    // `members`. A text is the reason for a failure. After a failure or an exception, the tables
    // and all slabs in them are unchanged, so that the caller can try again; but a cache has lost
    // the pages that its source has too.
    using Descriptors = KeptVolumes::Descriptors;
    using Volumes = std::vector<std::unique_ptr<Volume>>;
    static std::variant<Volumes, std::string> take_over(KeptVolumes contents,
                                                        const std::vector<Device*>& devices,
                                                        bool quiesced = false,
                                                        ImportedSlabs* imported = nullptr,
                                                        const std::vector<Spill>& spills = {});
    // The same for a volume that shares no pages.
    static std::variant<std::unique_ptr<Volume>, std::string> take_over(
        PageTable table, const std::vector<Device*>& devices, Descriptors slabs,
        std::shared_ptr<KeptParts> kept_parts, bool quiesced = false,
        ImportedSlabs* imported = nullptr, const std::vector<Spill>& spills = {});

    ~Volume();
    Volume(const Volume&) = delete;
    Volume& operator=(const Volume&) = delete;

    // A volume with the contents of one instant during the call: with every write that was answered
    // before, and without those that begin after it. Both share pages until one of them writes to a
    // page, which copies it. Neither has to outlive the other. A volume with Provision::full gets
    // as much memory again, so that no write to one of the two finds too little. `name`:
    // TableShape::name of the clone. `size`: of the clone, which ends with holes, if it is larger.
    // A text is the reason for a failure. Blocks.
    std::variant<std::unique_ptr<Volume>, std::string> clone(
        const std::string& name, std::optional<std::uint64_t> size = {}) {
        return clone(KeepOptions{.name = name}, size);
    }
    // The same. The clone of a kept volume is kept from the end of the call on, by kept parts of
    // its own for the same slabs.
    std::variant<std::unique_ptr<Volume>, std::string> clone(
        const KeepOptions& keep, std::optional<std::uint64_t> size = {});
    // Of the pages that are mapped, in bytes. Reads the whole table.
    struct Contents {
        std::uint64_t own = 0;
        std::uint64_t shared = 0;  // with other volumes
    };
    Contents contents() const;

    // Pages that are not in memory are fetched from there from now on. Call it before the volume is
    // read. Such a volume is not cloned or resized. It ends its source before its pools. A kept
    // volume is made or taken over for that: see TableShape.
    void set_source(std::unique_ptr<PageSource> source);
    PageSource* source() const { return source_.get(); }  // null: none
    PageCache* cache() const { return cache_; }           // the same, if that is one
    bool writes_to_source() const { return cache_ != nullptr && cache_->can_be_written_to(); }
    // Whether a page that cannot be read from its device may be fetched again from the source.
    bool can_fetch_again(std::uint64_t page) const {
        return cache_ != nullptr || (source_ != nullptr && !mapped(page));
    }
    // The device of a cache has failed: its pages come from another device from now on, and are at
    // most so many. An error text if that is not possible. Blocks. Call it once.
    std::string add_reserve(Device& device, std::uint64_t pages);
    // Whether the page is on a device that cannot be read any more.
    bool is_unreadable(std::uint64_t page) const {
        const PageEntry entry = table_.slot(page).load(std::memory_order_acquire);
        return entry.is_mapped() && !pools_->at(entry.device()).device().readable();
    }
    // Whether the page has contents even while it is a hole.
    bool in_source(std::uint64_t page) const { return source_ != nullptr && source_->has(page); }
    bool has_contents(std::uint64_t page) const { return mapped(page) || in_source(page); }

    // Whether one is a clone of the other, or both are clones of a third volume.
    bool shares_pools_of(const Volume& other) const { return pools_ == other.pools_; }
    // Whether there is such a volume.
    bool shares_pages() const { return pools_->front().tables().has_other(table_); }

    std::uint64_t size() const { return table_.size(); }
    std::uint64_t pages() const { return table_.pages(); }
    // Grows or shrinks the volume while clients use it; requests beyond the end are their server's
    // to refuse. What is beyond the new end is dropped. Kept contents have the old size or the new
    // one at any time. `configured`: PageTable::configured_size(). Returns the reason for a
    // failure, for users; empty: done. Blocks. One thread at a time may call it.
    std::string resize(std::uint64_t size, const std::stop_token& stop = {},
                       std::uint64_t configured = 0);
    // Incomplete contents are being made: they are neither cloned nor resized, and no other process
    // takes them over, whenever this one ends.
    bool complete() const { return table_.complete(); }
    // Call it after the last write of what makes the contents.
    void set_complete();
    // Before contents are made again. Waits for a clone in progress. Returns an error for users if
    // that is impossible.
    std::optional<std::string> set_incomplete();
    // Whether no page from this offset on is mapped.
    bool is_hole_from(std::uint64_t offset) const;
    std::uint64_t page_size() const { return page_size_; }
    std::uint64_t page_of(std::uint64_t offset) const { return offset >> page_shift_; }
    std::uint64_t offset_in_page(std::uint64_t offset) const { return offset & (page_size_ - 1); }
    PageDivision division() const { return division_; }  // of a page
    // The parts of these bytes of one page.
    Parts parts_at(std::uint64_t offset, std::uint64_t length) const {
        return division_.of(offset_in_page(offset), length);
    }
    // Those that a write of these bytes of one page changes as a whole. The last one ends with the
    // volume.
    Parts whole_parts_at(std::uint64_t offset, std::uint64_t length) const {
        const std::uint64_t begin = offset_in_page(offset);
        return division_.within(begin, offset + length == size() ? page_size_ - begin : length);
    }
    // The name of the export, which changes: see PageTable.
    std::string name() const { return table_.name(); }
    bool can_rename() const { return table_.can_rename(); }
    bool prepare_name(const std::string& name) { return table_.prepare_name(name); }
    bool set_name(const std::string& name) { return table_.set_name(name); }
    // The shape when the volume was made, also for another process, and the descriptor of the
    // table, which may be empty.
    const TableShape& shape() const { return table_.shape(); }
    const OwnedFd& table_descriptor() const { return table_.descriptor(); }
    std::uint64_t configured_size() const { return table_.configured_size(); }
    // Whether the table is another process's when this object ends.
    bool outlives_process() const { return is_kept_ && kept_parts_->keeps(); }
    // Of kept volumes that share pages, or have shared them; null otherwise.
    std::shared_ptr<const SharedDirectory> shared_directory() const { return pools_->directory(); }
    // The devices of the layout and of the spill memory, by the index that page table entries have.
    std::vector<Device*> devices() const;
    // The pages of the volume, and of all volumes that share pages with it, can be moved to this
    // memory from now on, in this order. Earlier spill memory that is not listed comes last. A text
    // is the reason why some of it cannot be added. Throws std::bad_alloc or std::system_error.
    // Nothing has changed then. One thread at a time may call it for these volumes. Blocks.
    std::string set_spills(const std::vector<Spill>& spills);
    bool has_spills() const {
        return reserve_.load() == nullptr && pools_->size() != layout_.devices();
    }
    // Until resume(), slabs are neither allocated nor released ahead of need. Waits for work in
    // progress, but not for that of a source, which is paused: see PageCache::pause(). So no slab
    // changes while no request needs a page.
    void quiesce();
    void resume();
    bool is_quiesced() const { return is_quiesced_; }
    // Of the table; see KeptCache and KeptClone.
    KeptCache kept_cache() const { return table_.kept_cache(); }
    KeptClone kept_clone() const { return table_.kept_clone(); }
    // A volume that was taken over has contents in these parts of the page only. Before it has
    // users.
    void set_parts(std::uint64_t page, Parts parts);
    // take_over() leaves mapping slabs into the CPU's address space for later: false until it is
    // done.
    bool takeover_finished() const;
    // Lets the provisioners do that from now on.
    void finish_takeover() noexcept;
    // Copies of the slabs' descriptors, for another process. Throws std::system_error if a
    // descriptor cannot be copied.
    struct SlabCopy {
        std::uint32_t device = 0;
        PoolSlabs::Copy copy;
    };
    std::vector<SlabCopy> copy_slabs() const;
    // The number of devices over which a long request is spread at a time.
    std::uint32_t width() const { return table_.shape().stripe_size != 0 ? layout_.devices() : 1; }

    // Starts threads ahead of need. If the system refuses one now, a later request tries again.
    void start_provisioners() noexcept;

    // The page behind page number `page`, pinned for reading, or a hole. It may lack parts, which
    // must not be read: see PageRef::missing(). Lock-free. If the device sends in place, and no
    // other volume has the page, it is pinned for Access::send: no other volume gets the page
    // before it is unpinned.
    PageRef find(std::uint64_t page) const;
    // The same for some parts of a page, which may be one of the source. A hole also if a cache has
    // the page, but not all of these.
    PageRef find(std::uint64_t page, Parts parts) const;
    // The same for bytes of one page.
    PageRef find_at(std::uint64_t offset, std::uint64_t length) const;
    // A page that is mapped and not moving, pinned for writing, or a hole.
    PageRef find_writable(std::uint64_t page) const { return find<Access::write>(page); }
    // Like find(), but pins the page for writing, and maps a page that reads as zeroes if there is
    // none, or one that its source has, or a copy of a shared page. Does not block: if the device
    // or the source has to be called, or if the page is moving, returns nothing and submits
    // `request`. Its waiter is called when it may try again, or when request.status is an error.
    // The page has `request.parts`.
    std::optional<Status> acquire(std::uint64_t page, PageRef& out, PageRequest& request,
                                  PageCompletions& completions);
    // Like acquire(), but blocks.
    Status map(std::uint64_t page, PageRef& out);
    // For a write of a whole page that is shared or not all in memory: a page with any contents,
    // pinned for writing, which replace() or PagePool::give_up() ends. A hole: use acquire().
    PageRef take_replacement(std::uint64_t page);
    // Whether take_replacement() may return a page now or later. Not those of kept pools, which
    // another process may take over before they are filled.
    bool can_replace(std::uint64_t page) const {
        return !taking_pool(page).memory().slabs().config().is_kept();
    }
    // A page with any contents for this number, pinned for writing, which replace() or
    // PagePool::give_up() ends. May call the device. Blocks.
    Status take_page(std::uint64_t page, PageRef& out) { return taking_pool(page).take_page(out); }
    // The page number has page `by` from now on, and readers find it. False: not now, since a clone
    // is being made.
    bool replace(std::uint64_t page, const PageRef& by);
    // The same for a page number without a page, of a volume with a source, also before
    // set_source(). False: it has one. `missing`: the parts without contents; see find().
    bool fill_hole(std::uint64_t page, const PageRef& by, Parts missing = 0);
    // Makes the page number a hole. Its page is reused once it is neither pinned nor shared. May
    // wait for a clone in progress.
    void unmap(std::uint64_t page);
    // The same without waiting. False: submits `request`, as acquire() does.
    bool unmap(std::uint64_t page, PageRequest& request, PageCompletions& completions);
    bool mapped(std::uint64_t page) const {
        return table_.slot(page).load(std::memory_order_acquire).is_mapped();
    }
    // The parts of the page that are not in memory: all of a hole. Other threads change them.
    Parts missing_parts(std::uint64_t page) const;
    // Whether a write to the page copies it, unless the other volumes that had it are gone.
    bool shared(std::uint64_t page) const {
        return table_.slot(page).load(std::memory_order_acquire).is_shared();
    }

    // A run of pages on one device, or of holes, that starts at `offset`. At most `length` bytes
    // long.
    struct Run {
        std::uint32_t device = 0;  // 1 + the index in devices(); 0: holes
        std::uint64_t length = 0;  // bytes
    };
    Run run_at(std::uint64_t offset, std::uint64_t length) const;
    // The same for contents, in memory or in the source: Run::device is 1 for pages that have some.
    Run contents_run_at(std::uint64_t offset, std::uint64_t length) const;
    // The same for what is in memory: Run::device is 1 for pages that are, with all of their parts.
    Run cached_run_at(std::uint64_t offset, std::uint64_t length) const;
    // Compares the volume with another one that shares pages with it. Run::device is 1 for pages
    // that may differ, and 0 for others.
    Run changed_run_at(const Volume& older, std::uint64_t offset, std::uint64_t length) const;

    // The pools by the index in devices(), shared with clones. Those of the layout know their
    // spills.
    std::uint32_t layout_devices() const { return layout_.devices(); }
    std::uint32_t pools() const { return pools_->size(); }
    PagePool& pool(std::uint32_t device) const { return pools_->at(device); }
    const std::shared_ptr<PagePool>& shared_pool(std::uint32_t device) const {
        return pools_->shared(device);
    }
    // For moving pages: the entry of page number `page`.
    EntrySlot slot(std::uint64_t page) const { return table_.slot(page); }

    std::uint64_t mapped_bytes() const;
    // Slabs are counted for the oldest of the volumes that share them.
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
    PagePool& pool_for(std::uint64_t page) const { return pools_->at(layout_.device_of(page)); }
    // The pool of which a hole gets a page. pool_for() guards its entry in any case.
    PagePool& taking_pool(std::uint64_t page) const {
        PagePool* const reserve = reserve_.load(std::memory_order_acquire);
        return reserve != nullptr ? *reserve : pool_for(page);
    }
    // Pins for this access. A page that is moving or shared is not found for writing.
    template <Access access>
    PageRef find(std::uint64_t page) const;

    Volume(PageTable table, Layout layout, const std::vector<Device*>& devices,
           const std::vector<Spill>& spills, std::shared_ptr<KeptParts> kept_parts,
           const std::shared_ptr<const SharedDirectory>& directory = nullptr);
    // Shares the pools of `source`.
    Volume(const Volume& source, PageTable table, std::shared_ptr<KeptParts> kept_parts);

    // The most pages on each device for so many pages. A linear volume grows and shrinks on its
    // last device only.
    std::vector<std::uint64_t> pages_by_device(std::uint64_t pages) const;
    static TableShape::DeviceShare share_on(const Device& device, std::uint32_t home,
                                            std::uint64_t pages, std::uint64_t page_size,
                                            bool is_kept, std::uint32_t spare_slabs);
    // Of a device of the layout or of spill memory. `directory`: null: in the table.
    std::shared_ptr<PagePool> make_pool(Device& device, std::uint32_t index,
                                        const TableShape::DeviceShare& share, SlabBudget* budget,
                                        const std::shared_ptr<const SharedDirectory>& directory,
                                        bool is_reserve = false);
    // The pool for this spill memory; null: there is none yet.
    PagePool* find_spill(const Spill& spill) const;
    // The new pool, or the reason why there can be none.
    std::variant<PagePool*, std::string> add_spill(const Spill& spill) REQUIRES(pools_->cloning());
    PagePool* add_pool(std::shared_ptr<PagePool> pool) REQUIRES(pools_->cloning());
    // The pages on one device.
    template <typename Call>
    void for_each_mapped(Call call) const;
    std::uint64_t mapped_pages(std::uint32_t device) const;
    // The parts of clone().
    std::string share_directory() REQUIRES(pools_->cloning());
    void freeze();
    void thaw();
    void set_shares(const std::vector<std::uint64_t>& pages_on);
    void share_pages(const Volume& target, PagePool::InUse& in_use);
    Status settle(const Volume& target, PagePool::InUse& in_use);
    Status settle_written(const Volume& target, std::vector<std::uint64_t>& written);
    Status settle_sent(const Volume& target, std::vector<std::uint64_t>& sent);
    // The pages whose property has the same value at first.
    template <class Property>
    Run run_of(Property property, std::uint64_t offset, std::uint64_t length) const;

    // Provision::full: allocates all missing slabs. Returns the index of the device that has no
    // memory.
    std::optional<std::uint32_t> fill(const std::stop_token& stop);
    // How many entries map the page, by device and page.
    using EntryCounts = std::vector<PoolTakeOver::EntryCounts>;
    // Of volumes that share their pools. A text is the reason why an entry is invalid.
    static std::variant<EntryCounts, std::string> check_entries(const Volumes& volumes);
    // Returns an empty text, or the reason for a failure. After a failure or an exception, call
    // abandon().
    std::string take_over(const EntryCounts& entries, Descriptors& slabs, ImportedSlabs* imported);
    void abandon() noexcept;
    // Without what the next process of a cache reads from the source again.
    void drop_unusable();
    // Pins and moves of another process are gone: its retired pages are plain holes, and its moving
    // pages are where they were.
    void settle_entries(const EntryCounts& entries);

    // For spill memory that is added later.
    static constexpr std::uint32_t room_for_pools = 64;

    const std::shared_ptr<KeptParts> kept_parts_;
    bool is_kept_ = false;  // by kept_parts_
    bool is_quiesced_ = false;
    PageTable table_;
    const Layout layout_;
    const std::uint64_t page_size_;  // bytes
    const std::uint32_t page_shift_;
    const PageDivision division_;
    std::shared_ptr<PoolList> pools_;  // never null; of all volumes that share pages
    std::unique_ptr<PageSource> source_;
    PageCache* cache_ = nullptr;
    Atomic<PagePool*> reserve_{nullptr};  // see add_reserve()
};

}  // namespace gpunbd::storage
