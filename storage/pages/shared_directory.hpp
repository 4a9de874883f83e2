// The slab directories of kept volumes that share pages, in a memory file of their own: no table of
// these volumes has to outlive the others, and there is room for the slabs of further clones and of
// spill memory that is added later.
//
// The format, in the byte order of the machine: a memory page with a header, which never changes,
// the number of devices that were added, and their records; then, for each device, a word that says
// whether the directory is in use, and its SlabEntry words. An earlier format has no room for
// further devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "storage/base/owned_fd.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

class SharedDirectory {
 public:
    // Of each device.
    static constexpr std::uint32_t max_slabs = 1 << 15;
    static constexpr std::uint32_t max_added = 16;

    // For these devices, and for max_added further ones. No directory is in use at first. Throws
    // std::system_error.
    explicit SharedDirectory(std::uint32_t devices);
    // Maps one that another process has made. A text is the reason why it cannot be used.
    static std::variant<SharedDirectory, std::string> open(OwnedFd descriptor);
    SharedDirectory(SharedDirectory&& other) noexcept;
    SharedDirectory& operator=(SharedDirectory&&) = delete;
    ~SharedDirectory();

    const OwnedFd& descriptor() const { return descriptor_; }
    // Those with which it was made. The devices that were added follow them.
    std::uint32_t devices() const { return devices_; }
    std::vector<TableShape::DeviceShare> added() const;
    // The following two exclude each other. The first makes the directory of the next device that
    // is added accessible. False: there is no room, or no memory.
    bool make_room() const noexcept;
    // Its last step is one store.
    void add(const TableShape::DeviceShare& share) const noexcept;
    SlabDirectory slabs(std::uint32_t device) const { return {words_of(device) + 1, max_slabs}; }
    // Whether it has the slabs of the device, instead of a page table. One store makes it so.
    bool in_use(std::uint32_t device) const;
    void set_in_use(std::uint32_t device) const;

 private:
    SharedDirectory(OwnedFd descriptor, std::uint32_t devices, std::uint32_t room) noexcept;
    std::uint64_t* words_of(std::uint32_t device) const;
    // Only the words of the present devices can be accessed: the others must not cost memory in a
    // process that locks its memory. False: there is no memory.
    bool map();
    bool allow(std::uint32_t first, std::uint32_t end) const noexcept;

    OwnedFd descriptor_;
    std::uint32_t devices_;
    std::uint32_t room_;  // for further devices
    std::byte* base_ = nullptr;
};

}  // namespace gpunbd::storage
