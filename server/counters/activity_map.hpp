// Shows where an export was read and written in the last second: cells of equal length, each with
// the second of its last access. Without a reader of the map it costs each request one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpunbd::server {

class ActivityMap {
 public:
    static constexpr std::uint64_t max_cells = 16384;

    // Both in bytes.
    ActivityMap(std::uint64_t size, std::uint64_t page_size);
    ~ActivityMap();
    ActivityMap(const ActivityMap&) = delete;
    ActivityMap& operator=(const ActivityMap&) = delete;

    // Called by workers, which need not report anything otherwise.
    bool is_watched() const { return cells_.load(std::memory_order_relaxed) != nullptr; }
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
    // Called by one thread: the map is watched from now on, and this is the current second of a
    // monotonic clock.
    void watch(std::uint64_t second);
    // A cell of the range was accessed in that second or the one before.
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
    std::atomic<Cells*> cells_{nullptr};  // owned; null before the first watch()
    std::atomic<Stamp> now_{0};
};

}  // namespace gpunbd::server
