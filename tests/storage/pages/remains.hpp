// What a process leaves that is killed: the bytes of a page table, and the slabs of which somebody
// else has descriptors. And that somebody.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "storage/pages/slab_keeper.hpp"

namespace gpunbd::storage::test {

// The words of a page that tests look at: its first, one in its middle, its last.
using PageWords = std::array<std::uint64_t, 3>;
std::array<std::uint64_t, 3> places_in(std::uint64_t page_size);

class PlayedKeeper final : public SlabKeeper {
 public:
    using Number = std::pair<std::uint32_t, std::uint32_t>;  // device, slab

    // `cut`: called before and after each change.
    explicit PlayedKeeper(std::function<void()> cut = {}) : cut_(std::move(cut)) {}
    ~PlayedKeeper();
    PlayedKeeper(const PlayedKeeper&) = delete;
    PlayedKeeper& operator=(const PlayedKeeper&) = delete;

    // The table is the test's own.
    bool keep_table(int) noexcept override { return true; }
    bool keep(std::uint32_t device, std::uint32_t slab, int descriptor) noexcept override;
    void forget(std::uint32_t device, std::uint32_t slab) noexcept override;

    std::vector<Number> numbers() const;
    // Copies, as Volume::take_over wants them.
    std::vector<std::vector<int>> copies(std::size_t devices) const;
    void each(const std::function<void(Number, int)>& call) const;
    void refuse(bool is_refusing);

 private:
    void tell() const {
        if (cut_) cut_();
    }

    const std::function<void()> cut_;
    mutable std::mutex mutex_;
    std::map<Number, int> kept_;
    bool refuses_ = false;
};

void close_all(std::vector<std::vector<int>>& descriptors);

struct Remains {
    struct OfSlab {
        std::uint64_t bytes = 0;
        std::vector<PageWords> pages;
        bool operator==(const OfSlab&) const = default;
    };
    std::vector<std::byte> table;
    std::map<PlayedKeeper::Number, OfSlab> slabs;
    bool operator==(const Remains&) const = default;
};

Remains look_at_remains(int table, const PlayedKeeper& store, std::uint64_t page_size);
// In new files, of which the store has all but the table's, which is the caller's.
int lay_out_again(const Remains& remains, std::uint64_t page_size, PlayedKeeper& store);

}  // namespace gpunbd::storage::test
