// Where an export was read and written in the last second, for whoever watches: the export in cells
// of the same length, each with the second in which it was last touched. Nobody watches: it costs a
// request one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpunbd::server {

class ActivityMap {
 public:
    static constexpr std::uint64_t max_cells = 16384;

    // Both in bytes, `page_size` a power of two.
    ActivityMap(std::uint64_t size, std::uint64_t page_size);
    ~ActivityMap();
    ActivityMap(const ActivityMap&) = delete;
    ActivityMap& operator=(const ActivityMap&) = delete;

    // Workers. For nobody nothing need be told.
    bool is_watched() const { return cells_.load(std::memory_order_relaxed) != nullptr; }
    // The range lies in the export.
    void read(std::uint64_t offset, std::uint64_t length) {
        if (Cells* const cells = cells_.load(std::memory_order_acquire)) {
            touch(cells->read, offset, length);
        }
    }
    void written(std::uint64_t offset, std::uint64_t length) {
        if (Cells* const cells = cells_.load(std::memory_order_acquire)) {
            touch(cells->written, offset, length);
        }
    }

    std::uint64_t cell() const { return std::uint64_t{1} << shift_; }  // bytes
    // One thread: somebody watches from now on, and it is this second of a clock that only grows.
    void watch(std::uint64_t second);
    // Has a cell of the range been touched in that second, or the one before?
    bool was_read(std::uint64_t offset, std::uint64_t length) const;
    bool was_written(std::uint64_t offset, std::uint64_t length) const;

 private:
    using Stamp = std::uint16_t;  // of a second; 0: never
    using Stamps = std::vector<std::atomic<Stamp>>;
    struct Cells {
        explicit Cells(std::size_t count) : read(count), written(count) {}
        Stamps read;
        Stamps written;
    };

    void touch(Stamps& stamps, std::uint64_t offset, std::uint64_t length) const;
    bool touched(const Stamps& stamps, std::uint64_t offset, std::uint64_t length) const;

    const std::uint64_t size_;
    std::uint32_t shift_;
    std::atomic<Cells*> cells_{nullptr};  // owned; there from the first watch() on
    std::atomic<Stamp> now_{0};
};

}  // namespace gpunbd::server
