// A volume: the address space of one export. Its page table maps page numbers to pages of its
// devices; a page that is not mapped is a hole and reads as zeroes. It is looked up on every
// access.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "storage/pages/fit.hpp"
#include "storage/pages/layout.hpp"
#include "storage/pages/page_pool.hpp"
#include "storage/pages/page_returns.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

struct VolumeOptions {
    std::uint64_t size = 0;             // bytes, not 0
    std::uint64_t page_size = 2 << 20;  // bytes, a power of two
    std::uint64_t stripe_size = 0;      // bytes, a multiple of page_size; 0: linear
    Provision provision = Provision::thin;
};

// What is written down of a volume that outlives the process, and who keeps it.
struct Keeping {
    std::string name;              // of the export
    std::string wanted;            // TableShape::wanted
    InstanceId instance{};         // new_instance()
    SlabKeeper* keeper = nullptr;  // outlives the volume; null: it ends with the process
};

class Volume {
 public:
    // The devices outlive the volume. Linear: each device takes as much as it has available before
    // the next is used. With `stop` it ends between two slabs, as if memory had run out. Throws
    // std::system_error where there is no memory for its table.
    static std::variant<std::unique_ptr<Volume>, Misfit> create(const VolumeOptions& options,
                                                                const std::vector<Device*>& devices,
                                                                const std::stop_token& stop = {},
                                                                const Keeping& keeping = {});
    // What another process has left: `slabs` are descriptors, by device and number, -1 where there
    // is none. Takes those that it uses; the others are nobody's, and the keeper forgets them.
    // `devices` are those of table.shape(), in their order. `rests`: until go_on(). A text:
    // why that is not whole, in one phrase; then nothing of it has been changed.
    static std::variant<std::unique_ptr<Volume>, std::string> take_over(
        PageTable table, const std::vector<Device*>& devices, std::vector<std::vector<int>>& slabs,
        SlabKeeper& keeper, bool rests = false);

    std::uint64_t size() const { return size_; }
    std::uint64_t page_size() const { return page_size_; }
    std::uint64_t page_of(std::uint64_t offset) const { return offset >> page_shift_; }
    std::uint64_t offset_in_page(std::uint64_t offset) const { return offset & (page_size_ - 1); }
    // What it is, also to another process; and the descriptor of that, or -1.
    const TableShape& shape() const { return table_.shape(); }
    int table_descriptor() const { return table_.descriptor(); }
    std::vector<Device*> devices() const;
    // Nothing is made or given back ahead of need until go_on(); waits for what is under way. So,
    // while nobody asks for pages, no slab comes or goes.
    void rest();
    void go_on();
    // Has taking over put off nothing?
    bool is_taken_over() const;
    // What it has put off is done from now on, behind those who use the volume: the CPU comes to
    // address what it can.
    void finish_taking_over() noexcept;
    // The descriptors of its slabs, copied, for another process.
    struct SlabCopy {
        std::uint32_t device = 0;
        std::uint32_t slab = 0;
        int descriptor = -1;  // -1: there was none to be had
    };
    std::vector<SlabCopy> copy_slabs() const;
    // How many devices a long request is spread over at a time.
    std::uint32_t width() const {
        return table_.shape().stripe_size != 0 ? static_cast<std::uint32_t>(pools_.size()) : 1;
    }

    // So that nobody waits for a thread later. Where the system has none now, it is asked again.
    void start_provisioners() noexcept;

    // Lock-free. The page behind page number `page`, pinned, or a hole.
    PageRef find(std::uint64_t page) const;
    // The same, but a hole is first given a page that reads as zeroes. Does not block: nothing,
    // where the device has to be asked. Then the request is under way, and its asker is told when
    // it may ask again, or that status() is an error.
    std::optional<Status> acquire(std::uint64_t page, PageRef& out, PageRequest& request,
                                  PageReturns& returns);
    // The same, and blocks.
    Status map(std::uint64_t page, PageRef& out);
    // Makes it a hole; the page is reused once nobody holds it, but here at once.
    void unmap(std::uint64_t page);
    bool mapped(std::uint64_t page) const {
        return table_.slot(page).load(std::memory_order_acquire).is_mapped();
    }

    // The run of pages on one device, or of holes, that starts at `offset`; at most `length` bytes
    // of it.
    struct Run {
        std::uint32_t device = 0;  // counted from 1, in the order of devices(); 0: holes
        std::uint64_t length = 0;  // bytes
    };
    Run run_at(std::uint64_t offset, std::uint64_t length) const;

    std::uint64_t mapped_bytes() const;
    std::uint64_t allocated_bytes() const;
    // What it has on one device.
    struct Memory {
        const Device* device = nullptr;
        std::uint64_t mapped = 0;     // bytes
        std::uint64_t allocated = 0;  // bytes
        std::uint64_t slabs = 0;
    };
    std::vector<Memory> memory() const;  // by its devices, in their order
    // Of pages that were unmapped, and are held still.
    std::uint64_t retired_bytes() const;

 private:
    // As Run tells it.
    std::uint32_t device_of(std::uint64_t page) const {
        const PageEntry entry = table_.slot(page).load(std::memory_order_acquire);
        return entry.is_mapped() ? entry.device() + 1 : 0;
    }
    PagePool& pool_for(std::uint64_t page) { return *pools_[layout_.device_of(page)]; }

    Volume(PageTable table, Layout layout, const std::vector<Device*>& devices, SlabKeeper* keeper);

    // Provision::full: allocates what is not there. A number: that device has no memory for it.
    std::optional<std::uint32_t> fill(const std::stop_token& stop);
    // By device and page: does an entry have it?
    using MappedPages = std::vector<std::vector<bool>>;
    // A text: what cannot be.
    std::variant<MappedPages, std::string> look_at_entries() const;
    // Empty: all of it is there. Else leave() is next.
    std::string adopt(const MappedPages& mapped, const std::vector<std::vector<int>>& slabs);
    // PagePool::leave() of each.
    void leave(const std::vector<std::vector<int>>& adopted);
    // Nobody holds a page of another process any more.
    void forget_left_pages();

    PageTable table_;
    const Layout layout_;
    const std::uint64_t size_;       // bytes
    const std::uint64_t page_size_;  // bytes
    const std::uint32_t page_shift_;
    std::vector<std::unique_ptr<PagePool>> pools_;  // one per device, in the layout's order
};

}  // namespace gpunbd::storage
