// Slabs of one volume that this process imports while another process still serves the volume.
// Importing a slab of a GPU takes milliseconds, for which clients would otherwise wait during an
// upgrade.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "storage/devices/device.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

class ImportedSlabs {
 public:
    // `devices` are those of the volume, in the order of its table. They outlive this object.
    explicit ImportedSlabs(std::vector<Device*> devices) : devices_(std::move(devices)) {}
    // Releases the slabs that were not taken. Their memory stays with the other process.
    ~ImportedSlabs();
    ImportedSlabs(const ImportedSlabs&) = delete;
    ImportedSlabs& operator=(const ImportedSlabs&) = delete;

    // `entry` and `record` describe the slab of `descriptor`. A failure has no effect: taking over
    // the volume fails for the same reason and reports it.
    void import(std::uint32_t device, std::uint32_t slab, SlabEntry entry, const SlabRecord& record,
                OwnedFd descriptor);
    std::size_t size() const { return slabs_.size(); }
    // Moves the slab with this number to `out`. Returns false if it was not imported, or if the
    // number has been reused for another slab since.
    bool take(std::uint32_t device, std::uint32_t slab, SlabEntry entry, Slab& out) noexcept;

 private:
    struct Imported {
        SlabEntry entry;
        Slab slab;
    };
    std::vector<Device*> devices_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Imported> slabs_;  // by device and number
};

}  // namespace gpunbd::storage
