// Selects the device of an export on which a page is allocated. The page table records the
// location.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
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

// Checks whether a volume fits on its devices, and lays out its pages. No memory is allocated.

struct VolumeOptions;

// The memory that a volume needs and its devices lack. All sizes are in bytes.
struct CapacityError {
    std::optional<std::uint32_t> device =
        {};                   // the index of the device that lacks it; none: all devices together
    std::uint64_t asked = 0;  // needed from that device, or from all
    std::uint64_t available = 0;  // of that, in whole pages
    std::uint64_t largest = 0;    // the largest size of the volume that would fit
    bool ran_out = false;  // memory ran out during allocation, although enough was available before

    bool operator==(const CapacityError&) const = default;
};

// `available`: the bytes that each device can allocate.
std::variant<Layout, CapacityError> lay_out(const VolumeOptions& options,
                                            const std::vector<std::uint64_t>& available);

}  // namespace gpunbd::storage
