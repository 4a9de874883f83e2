// Which parts of a BAR are taken: slabs are ranges in it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace gpunbd::storage {

// One thread at a time.
class BarRanges {
 public:
    explicit BarRanges(std::uint64_t bytes);

    std::uint64_t free_bytes() const { return free_bytes_; }
    // The offset of the smallest part that is free and long enough, of which it takes the
    // beginning. Nothing: there is none. std::bad_alloc: nothing has changed.
    std::optional<std::uint64_t> take(std::uint64_t bytes);
    // What take() gave at that offset.
    void give_back(std::uint64_t offset) noexcept;

 private:
    struct Part {
        std::uint64_t bytes = 0;
        bool free = true;
    };
    using Parts = std::map<std::uint64_t, Part>;  // by offset; no two that are free meet
    void join_next(Parts::iterator part) noexcept;

    Parts parts_;
    std::uint64_t free_bytes_;
};

}  // namespace gpunbd::storage
