// The slab directories of kept volumes that share pages, in a memory file of their own: no table of
// these volumes has to outlive the others, and there is room for the slabs of further clones.
//
// The format, in the byte order of the machine: a memory page with a header, which never changes;
// then, for each device, a word that says whether the directory is in use, and its SlabEntry words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "storage/base/owned_fd.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

class SharedDirectory {
 public:
    // Of each device.
    static constexpr std::uint32_t max_slabs = 1 << 15;

    // No directory is in use at first. Throws std::system_error.
    explicit SharedDirectory(std::uint32_t devices);
    // Maps one that another process has made. A text is the reason why it cannot be used.
    static std::variant<SharedDirectory, std::string> open(OwnedFd descriptor);
    SharedDirectory(SharedDirectory&& other) noexcept;
    SharedDirectory& operator=(SharedDirectory&&) = delete;
    ~SharedDirectory();

    const OwnedFd& descriptor() const { return descriptor_; }
    std::uint32_t devices() const { return devices_; }
    SlabDirectory slabs(std::uint32_t device) const { return {words_of(device) + 1, max_slabs}; }
    // Whether it has the slabs of the device, instead of a page table. One store makes it so.
    bool in_use(std::uint32_t device) const;
    void set_in_use(std::uint32_t device) const;

 private:
    SharedDirectory(OwnedFd descriptor, std::uint32_t devices, std::byte* base) noexcept;
    std::uint64_t* words_of(std::uint32_t device) const;

    OwnedFd descriptor_;
    std::uint32_t devices_;
    std::byte* base_ = nullptr;
};

}  // namespace gpunbd::storage
