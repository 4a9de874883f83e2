// The metadata of a volume in one mapping: its shape, the slabs of its devices, and the page of
// each page number. It can outlive the process: after a crash at any instruction, another process
// that maps it finds it valid.
//
// The format, in the byte order of the machine: a header with a checksum, which never changes; a
// record for each device; texts; then, aligned to a memory page, the sizes, one word for each slab
// of each device (SlabEntry), and one word for each page number (PageEntry), with room for more; at
// the end, the names that the export got later. A mark replaces the current size while the contents
// are incomplete. The table of a cache has the words of KeptCache instead of the room, and that of
// a clone of a cache those of KeptClone. Two earlier formats are only read: the later one has no
// names, and the other one has the entries before the slabs, no sizes and no room either.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/pages/kept_cache.hpp"
#include "storage/pages/kept_clone.hpp"

namespace gpunbd::storage {

// The directory entry of a slab. The zero word of a new table means that there is no slab.
struct SlabEntry {
    std::uint32_t pages = 0;  // 0: there is no slab
    std::uint8_t kind = 0;    // Slab::kind, defined by the device
    // Counts the slabs that have had this number, modulo 2^24. Kept when the slab is released.
    std::uint32_t generation = 0;

    static SlabEntry of_word(std::uint64_t word) {
        return {.pages = static_cast<std::uint32_t>(word),
                .kind = static_cast<std::uint8_t>(word >> 32),
                .generation = static_cast<std::uint32_t>(word >> 40)};
    }
    bool operator==(const SlabEntry&) const = default;
    std::uint64_t word() const {
        return std::uint64_t{generation} << 40 | std::uint64_t{kind} << 32 | pages;
    }
};

// The slab entries of one device of a volume.
class SlabDirectory {
 public:
    SlabDirectory() = default;
    SlabDirectory(std::uint64_t* words, std::uint32_t slabs) : words_(words), slabs_(slabs) {}

    std::uint32_t slabs() const { return slabs_; }
    SlabEntry load(std::uint32_t slab) const {
        GPUNBD_ASSERT(slab < slabs_, "the number of a slab is within its directory");
        return SlabEntry::of_word(std::atomic_ref(words_[slab]).load());
    }
    void store(std::uint32_t slab, SlabEntry entry) const {
        GPUNBD_ASSERT(slab < slabs_, "the number of a slab is within its directory");
        std::atomic_ref(words_[slab]).store(entry.word());
    }

 private:
    std::uint64_t* words_ = nullptr;
    std::uint32_t slabs_ = 0;
};

// Identifies the contents of a volume. New contents have a new id.
using InstanceId = std::array<std::uint8_t, 16>;
InstanceId new_instance();
std::string instance_text(const InstanceId& id);  // 32 hexadecimal digits

// Describes a table. It does not change after the table has been made.
struct TableShape {
    struct DeviceShare {
        std::string identity;          // DeviceInfo::identity
        std::uint64_t pages = 0;       // the maximum of the volume on this device
        std::uint32_t slab_pages = 0;  // a power of two; the last slab may be shorter
        std::uint32_t slabs = 0;       // at most; 0: the table is without their directory
        std::uint32_t home = 0;        // of spill memory: pages of this device are moved here
        bool operator==(const DeviceShare&) const = default;
    };
    std::string name;    // the first name of the export
    std::string wanted;  // the configuration of the volume, to compare with a later one
    InstanceId instance{};
    std::int64_t made = 0;          // seconds since 1970
    std::uint64_t size = 0;         // bytes
    std::uint64_t page_size = 0;    // bytes
    std::uint64_t stripe_size = 0;  // bytes; 0: linear
    Provision provision = Provision::thin;
    std::vector<DeviceShare> devices;  // those of the layout, then the spill memory
    std::uint32_t spills = 0;          // the number of the latter
    // Kept pages are those of a cache. The volume has one device, which may have fewer pages than
    // the volume, and keeps its size.
    bool is_cache = false;
    // Pages that it does not have are those of a cache. It keeps its size.
    bool is_clone_of_cache = false;

    std::uint32_t layout_devices() const {
        return static_cast<std::uint32_t>(devices.size()) - spills;
    }
    std::uint64_t pages() const { return (size + page_size - 1) / page_size; }
    bool has_fixed_size() const { return is_cache || is_clone_of_cache; }
    bool operator==(const TableShape&) const = default;
};

class PageTable {
 public:
    // `kept`: makes a descriptor, so that another process can keep the table. `size`: at first, if
    // it is not that of the shape. Throws std::system_error.
    PageTable(TableShape shape, bool kept, std::uint64_t size = 0, bool complete = true);
    // Maps a table that another process has created. A text is the reason why it cannot be used.
    static std::variant<PageTable, std::string> open(OwnedFd descriptor);
    PageTable(PageTable&& other) noexcept;
    PageTable& operator=(PageTable&&) = delete;
    ~PageTable();

    // As the table was made; name(), size() and pages() are the current values.
    const TableShape& shape() const { return shape_; }
    std::uint64_t size() const { return size_.load(std::memory_order_relaxed); }  // bytes
    std::uint64_t pages() const { return (size() + shape_.page_size - 1) / shape_.page_size; }
    // The number of entries that can be accessed: at least pages(). It never decreases.
    std::uint64_t slots() const { return slots_.load(std::memory_order_acquire); }
    // Makes the entries of this size accessible, without moving the others, which other threads use
    // meanwhile. False: the table has no room for them.
    bool make_room(std::uint64_t size);
    // Changes the size, for which there is room, by one store. Entries from pages() on stay.
    void set_size(std::uint64_t size);
    // False: the table has a format without sizes, or is that of a cache or of a clone of one.
    bool can_resize() const { return sizes_ != nullptr && !shape_.has_fixed_size(); }
    // Whether another process may take the contents over. Changed by one store. False: the table
    // has a format without sizes, and is always complete.
    bool complete() const { return complete_.load(); }
    bool set_complete(bool complete);
    // The bytes for which the volume was configured when its size changed last, if that was not the
    // size in shape().wanted; otherwise 0. Set it before the size, which a process that takes the
    // table over has to be able to tell from a changed configuration.
    std::uint64_t configured_size() const;
    void set_configured_size(std::uint64_t size);
    // The name of the export. Any thread.
    std::string name() const;
    static constexpr std::size_t max_name = 4096;  // bytes, of a later name
    // False: the table has a format without names.
    bool can_rename() const { return !descriptor_ || has_names_; }
    // Provides the memory that set_name() needs. Both return false and set errno on failure, and
    // nothing has changed then. One thread at a time may call them.
    bool prepare_name(const std::string& name);
    // Changed by one store: another process finds the old name or the new one at any time.
    bool set_name(const std::string& name);
    const OwnedFd& descriptor() const {
        return descriptor_;
    }  // empty: the table ends with the process
    EntrySlot slot(std::uint64_t number) const {
        GPUNBD_ASSERT(number < slots(), "a table has room for each page number that is used");
        return EntrySlot(entries_[number]);
    }
    // Of a table without a descriptor, only the number of slabs may be used.
    SlabDirectory slabs(std::uint32_t device) const;
    KeptCache kept_cache() const {
        return shape_.is_cache ? KeptCache(entries_ + shape_.pages(), shape_.pages()) : KeptCache();
    }
    KeptClone kept_clone() const {
        return shape_.is_clone_of_cache ? KeptClone(entries_ + shape_.pages(), shape_.pages())
                                        : KeptClone();
    }

 private:
    PageTable(OwnedFd descriptor, std::byte* base, std::size_t bytes) noexcept;
    // Sets the pointers into a table with this header.
    void set_parts(std::uint64_t head, bool has_sizes);
    void set_slots(std::uint64_t accessible);
    // Where the entries end at the latest, in bytes.
    std::uint64_t end_of_room() const;
    // The number of the name in the file that is not in use.
    std::uint64_t next_name() const { return name_in_use_ == 1 ? 2 : 1; }
    bool write_next_name(const std::string& name) const;
    bool write_name_in_use(std::uint64_t number) const;
    // Returns false if it is invalid.
    bool read_name();

    TableShape shape_;
    mutable Mutex name_mutex_;
    std::string name_ GUARDED_BY(name_mutex_);
    bool has_names_ = false;
    std::uint64_t name_in_use_ = 0;  // its number in the file; 0: that of the shape
    std::atomic<std::uint64_t> size_{0};
    std::atomic<std::uint64_t> slots_{0};
    std::atomic<bool> complete_{true};
    OwnedFd descriptor_;
    std::byte* base_ = nullptr;
    std::size_t bytes_ = 0;  // of addresses
    struct Sizes {
        std::uint64_t current;  // or the mark of incomplete contents
        std::uint64_t configured;
    };
    Sizes* sizes_ = nullptr;
    std::uint64_t* slabs_ = nullptr;
    std::uint64_t* entries_ = nullptr;
};

// Of a volume; limited by the 16 bits in PageEntry.
inline constexpr std::uint32_t max_devices = 1 << 16;

// A device of a volume as the files of kept contents describe it.
struct DeviceRecord {
    static constexpr std::uint64_t max_pages = ~PageIndex{0};

    std::uint64_t pages;
    std::uint32_t slab_pages;
    std::uint32_t slabs;
    char identity[60];  // zero-terminated
    std::uint32_t home;

    static DeviceRecord of(const TableShape::DeviceShare& share) {
        DeviceRecord record{.pages = share.pages,
                            .slab_pages = share.slab_pages,
                            .slabs = share.slabs,
                            .identity = {},
                            .home = share.home};
        share.identity.copy(record.identity, sizeof record.identity - 1);
        return record;
    }
    TableShape::DeviceShare share() const {
        return {.identity = {identity, ::strnlen(identity, sizeof identity - 1)},
                .pages = pages,
                .slab_pages = slab_pages,
                .slabs = slabs,
                .home = home};
    }
};
static_assert(sizeof(DeviceRecord) == 80);

}  // namespace gpunbd::storage
