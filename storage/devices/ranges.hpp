// Allocates slabs as ranges of one address space: a BAR or a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace gpunbd::storage {

// Not thread-safe.
class Ranges {
 public:
    explicit Ranges(std::uint64_t bytes);

    std::uint64_t free_bytes() const { return free_bytes_; }
    // Allocates the start of the smallest free range that is long enough, and returns its offset.
    // Empty: there is none. std::bad_alloc has no effect.
    std::optional<std::uint64_t> take(std::uint64_t bytes);
    // Frees the range that take() has returned.
    void give_back(std::uint64_t offset) noexcept;

 private:
    struct Part {
        std::uint64_t bytes = 0;
        bool free = true;
    };
    using Parts = std::map<std::uint64_t, Part>;  // by offset; adjacent free ranges are merged
    void join_next(Parts::iterator part) noexcept;

    Parts parts_;
    std::uint64_t free_bytes_;
};

}  // namespace gpunbd::storage
