// Which pages of a volume were used least recently, as a clock finds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <vector>

#include "storage/base/thread_annotations.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/pages/page_states.hpp"

namespace gpunbd::storage {

class BusyPages;
class Volume;
class WriteRecords;

// The pages of a cache that are in memory, by their index in the pool that they are in. The caller
// has a mutex, which also guards `busy`. All three arguments outlive this object.
class CachedPages {
 public:
    CachedPages(const Volume& volume, const WriteRecords& written, const BusyPages& busy)
        : volume_(volume), written_(written), busy_(busy) {}

    // It knows no page, and those in this pool of the volume from now on.
    void move_to(std::uint32_t pool);
    std::uint32_t pool() const { return pool_; }
    bool empty() const { return pages_.empty(); }

    // The page is found by the clock from now on. `is_wanted`: a client waits for it; this use is
    // no reason to keep it.
    void remember(std::uint64_t page, bool is_wanted);
    // The same, unless it is known, for a page that a client has written.
    void remember_written(std::uint64_t page);
    // The last use of the page was not by a client.
    void ignore_use(std::uint64_t page, PageIndex index);

    struct Victim {
        std::uint64_t page = 0;   // number in the volume
        bool was_wasted = false;  // it was read ahead of clients, and none has used it
    };
    // The page that makes room next; empty: none can. It may have to stay nevertheless, if a write
    // to it begins.
    std::optional<Victim> next_victim();

    // Slabs that can be tried to make free before all have been.
    std::size_t slabs() const;
    // The one that the clock comes to next.
    std::uint32_t next_slab();
    // Whether no page of the slab has to stay.
    bool may_drop(std::uint32_t slab) const;
    // Calls `action` with the number of each page that is in the slab. It may require the mutex.
    template <typename Action>
    void for_each(std::uint32_t slab, Action action) const NO_THREAD_SAFETY_ANALYSIS {
        for (const std::size_t index : indices_of(slab)) {
            if (is_here(index)) action(pages_[index].number);
        }
    }

 private:
    // As the hand of the clock has left it.
    struct Page {
        std::uint64_t number = 0;  // in the volume, if that is mapped to this page
        std::uint32_t uses = 0;    // PageStates::uses()
        bool is_ahead = false;     // it was read ahead of clients, and none has used it
    };

    const PageStates& states() const;
    std::size_t pages_of_slab() const;
    std::ranges::iota_view<std::size_t, std::size_t> indices_of(std::uint32_t slab) const;
    // Whether the volume has the page of this index now, as `pages_` says; and whether it would
    // make room, so it is not pinned, and need not stay.
    bool is_here(std::size_t index) const;
    bool makes_room(std::size_t index) const;

    const Volume& volume_;
    const WriteRecords& written_;
    const BusyPages& busy_;
    std::uint32_t pool_ = 0;   // of the volume
    std::vector<Page> pages_;  // by PageIndex
    std::size_t hand_ = 0;     // the next one
};

}  // namespace gpunbd::storage
