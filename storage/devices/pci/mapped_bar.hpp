// A BAR in the CPU's address space, write-combined where the system offers that, and the right to
// use it: no other server has it meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::storage {

class MappedBar {
 public:
    // The first `bytes`, a multiple of the system's pages. Switches the card on, if it is not.
    // Throws DeviceTaken where another process has it, std::runtime_error with one line where it
    // cannot be had.
    MappedBar(const PciCard& card, std::uint32_t number, std::uint64_t bytes);
    ~MappedBar();
    MappedBar(const MappedBar&) = delete;
    MappedBar& operator=(const MappedBar&) = delete;

    std::byte* data() const { return data_; }
    // Else each store and load goes over the bus by itself.
    bool write_combined() const { return write_combined_; }

 private:
    int lock_;  // the file of the BAR, which also exists where that of the write-combined one does
    bool write_combined_ = false;
    std::uint64_t bytes_;
    std::byte* data_ = nullptr;
};

}  // namespace gpunbd::storage
