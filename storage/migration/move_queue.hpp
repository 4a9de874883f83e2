// A list of pages that several threads move.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

struct PageToMove {
    enum class Outcome : std::uint8_t {
        stayed,   // it is being written, or is not in `from` any more
        moved,    // to `to`
        no_room,  // no target has memory for it
        failed,   // it could not be read or written
    };

    Volume* volume = nullptr;
    PagePool* from = nullptr;
    // Null: the first pool in from->spills() that has memory.
    PagePool* to = nullptr;
    std::optional<SlabKind> kind = {};  // of the slab in `to`; empty: any
    std::uint64_t number = 0;           // in the volume
    Outcome outcome = Outcome::stayed;
};

// It does not own the pages. Each page is in the list once, so that one thread moves it.
class MoveQueue {
 public:
    explicit MoveQueue(std::span<PageToMove> pages) : pages_(pages) {}

    // Any thread may call the following.
    //
    // The next page; null: none is left.
    PageToMove* next() {
        while (true) {
            const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
            if (index >= pages_.size()) return nullptr;
            PageToMove& page = pages_[index];
            if (page.from != full_.load(std::memory_order_relaxed)) return &page;
            page.outcome = PageToMove::Outcome::no_room;
        }
    }
    // The next pages of this pool find no memory either. To try each of them would take long.
    void set_full(const PagePool* from) { full_.store(from, std::memory_order_relaxed); }

 private:
    const std::span<PageToMove> pages_;
    std::atomic<std::size_t> next_{0};
    std::atomic<const PagePool*> full_{nullptr};
};

}  // namespace gpunbd::storage
