// What a volume knows of its pages, as plain data in one mapping: what the volume is, which slabs
// its devices have, and which page each page number has. It can outlive the process: whoever maps
// it again finds it valid, at whichever instruction its last user died.
//
// The format, in the byte order of the machine: a header, which never changes and has a checksum;
// a record for each device; texts; from the next whole memory page on, one word for each page
// number (PageEntry), then one word for each slab of each device (SlabEntry).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "storage/devices/device.hpp"
#include "storage/pages/page_entry.hpp"

namespace gpunbd::storage {

// A slab of a device, by its number there. The word of a new table, all zeroes, is none.
struct SlabEntry {
    std::uint32_t pages = 0;  // 0: there is none
    std::uint8_t kind = 0;    // the device's own: Slab::kind

    static SlabEntry of_word(std::uint64_t word) {
        return {.pages = static_cast<std::uint32_t>(word),
                .kind = static_cast<std::uint8_t>(word >> 32)};
    }
    std::uint64_t word() const { return std::uint64_t{kind} << 32 | pages; }
};

// The slabs of one device of a volume.
class SlabDirectory {
 public:
    SlabDirectory() = default;
    SlabDirectory(std::uint64_t* words, std::uint32_t slabs) : words_(words), slabs_(slabs) {}

    std::uint32_t slabs() const { return slabs_; }
    SlabEntry load(std::uint32_t slab) const {
        return SlabEntry::of_word(std::atomic_ref(words_[slab]).load());
    }
    void store(std::uint32_t slab, SlabEntry entry) const {
        std::atomic_ref(words_[slab]).store(entry.word());
    }

 private:
    std::uint64_t* words_ = nullptr;
    std::uint32_t slabs_ = 0;
};

// Of contents: another one whenever they are new.
using InstanceId = std::array<std::uint8_t, 16>;
InstanceId new_instance();                        // that nobody has had
std::string instance_text(const InstanceId& id);  // 32 hexadecimal digits

// What a table is about. Once it is made, none of it changes.
struct TableShape {
    struct OnDevice {
        std::string identity;          // DeviceInfo::identity
        std::uint64_t pages = 0;       // that the volume can have there
        std::uint32_t slab_pages = 0;  // a power of two; the last slab may be shorter
        std::uint32_t slabs = 0;       // at most
        bool operator==(const OnDevice&) const = default;
    };
    std::string name;    // of the export
    std::string wanted;  // what its configuration asks of a volume, to compare with another
    InstanceId instance{};
    std::int64_t made = 0;          // seconds since 1970
    std::uint64_t size = 0;         // bytes
    std::uint64_t page_size = 0;    // bytes
    std::uint64_t stripe_size = 0;  // bytes; 0: linear
    Provision provision = Provision::thin;
    std::vector<OnDevice> devices;

    std::uint64_t pages() const { return (size + page_size - 1) / page_size; }
    bool operator==(const TableShape&) const = default;
};

class PageTable {
 public:
    // `kept`: it has a descriptor, for others to keep. Throws std::system_error.
    PageTable(TableShape shape, bool kept);
    // Maps what another process has made. Takes the descriptor, in any case. A text: why it cannot
    // be used, in one phrase.
    static std::variant<PageTable, std::string> open(int descriptor);
    PageTable(PageTable&& other) noexcept;
    PageTable& operator=(PageTable&&) = delete;
    ~PageTable();

    const TableShape& shape() const { return shape_; }
    int descriptor() const { return descriptor_; }  // -1: it ends with the process
    // `number` is less than shape().pages().
    EntrySlot slot(std::uint64_t number) const { return EntrySlot(entries_[number]); }
    SlabDirectory slabs(std::uint32_t device) const;

 private:
    PageTable(TableShape shape, int descriptor, std::byte* base, std::size_t bytes);

    TableShape shape_;
    int descriptor_ = -1;
    std::byte* base_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t* entries_ = nullptr;
};

}  // namespace gpunbd::storage
