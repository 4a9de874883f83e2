// A BAR that is mapped into the CPU's address space, write-combined if possible, and locked against
// other servers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/base/owned_fd.hpp"
#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::storage {

class MappedBar {
 public:
    // Maps the first `bytes`, a multiple of the memory page size. Enables the card if necessary.
    // Throws DeviceInUse if another process has it, and std::runtime_error with one line on other
    // failures.
    MappedBar(const PciCard& card, std::uint32_t number, std::uint64_t bytes);
    ~MappedBar();
    MappedBar(const MappedBar&) = delete;
    MappedBar& operator=(const MappedBar&) = delete;

    std::byte* data() const { return data_; }
    // Otherwise each store and load is a bus transaction of its own.
    bool write_combined() const { return write_combined_; }

 private:
    // The file of the BAR, which exists even if the mapping uses the write-combined file.
    const OwnedFd lock_;
    bool write_combined_ = false;
    std::uint64_t bytes_;
    std::byte* data_ = nullptr;
};

}  // namespace gpunbd::storage
