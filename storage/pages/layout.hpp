// Selects the device of an export on which a page is allocated. The page table records the
// location.
#pragma once

#include <cstdint>
#include <vector>

namespace gpunbd::storage {

class Layout {
 public:
    // The first shares[0] pages on device 0, the next shares[1] on device 1, and so on.
    static Layout linear(std::vector<std::uint64_t> shares);
    // Stripes of `unit` pages, one device after another.
    static Layout stripe(std::uint64_t pages, std::uint64_t unit, std::uint32_t devices);

    std::uint32_t device_of(std::uint64_t page) const;
    // The largest number of pages that device `index` has to hold.
    std::uint64_t pages_on(std::uint32_t index) const;
    std::uint32_t devices() const { return devices_; }

 private:
    std::uint64_t pages_ = 0;
    std::uint64_t unit_ = 0;  // pages; 0: linear
    std::uint32_t devices_ = 1;
    std::vector<std::uint64_t> bounds_;  // linear: the first page after each device
};

}  // namespace gpunbd::storage
