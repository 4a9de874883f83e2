#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_parts.hpp"

namespace gpunbd::storage {

// Differs between sources, also if they have had the same name: of a file that is written to, its
// device and its number there; see Origin::id_of_contents(). Zeroes: it is not known.
using SourceId = std::array<std::uint64_t, 2>;

// What the page table of a kept volume knows of each page besides its entry, if the volume is a
// cache of a source:
// - the parts with changes that the source does not have. They are valid after every store, also
//   for the next process after a kill. Only parts with contents are marked.
// - the parts with contents. They are only valid while another process takes the volume over, which
//   `hand_over` says. Otherwise the next process reads the unmarked parts from the source again.
//
// Any thread may call these functions. The words belong to the table. It also has the id of the
// source, so that changes are not written to another one.
class KeptCache {
 public:
    KeptCache() = default;  // of a volume that is not kept, or no cache: nothing is marked
    // `words`: so many as words_for() returns.
    KeptCache(std::uint64_t* words, std::uint64_t pages) : words_(words), pages_(pages) {}
    static constexpr std::uint64_t words_for(std::uint64_t pages) { return 2 * pages + 3; }

    bool is_kept() const { return words_ != nullptr; }

    Parts unwritten(std::uint64_t page) const { return is_kept() ? marks(page).load() : 0; }
    void add_unwritten(std::uint64_t page, Parts parts) const {
        if (is_kept() && parts != 0) marks(page).fetch_or(parts);
    }
    void remove_unwritten(std::uint64_t page, Parts parts) const {
        if (is_kept() && parts != 0) marks(page).fetch_and(~parts);
    }
    // Then the next process must not give them up, unless a user says so.
    bool any_unwritten() const {
        return std::ranges::any_of(std::span(words_, pages_), [](std::uint64_t& word) {
            return std::atomic_ref(word).load() != 0;
        });
    }

    void set_present(std::uint64_t page, Parts parts) const {
        GPUNBD_ASSERT(is_kept(), "only the parts of kept pages are handed over");
        std::atomic_ref(words_[pages_ + page]).store(parts);
    }
    // The parts with contents that the next process may use.
    Parts usable(std::uint64_t page) const {
        if (!is_kept()) return 0;
        const Parts present = is_handed_over() ? std::atomic_ref(words_[pages_ + page]).load() : 0;
        return present | unwritten(page);
    }
    SourceId source() const { return {words_[2 * pages_ + 1], words_[2 * pages_ + 2]}; }
    void set_source(const SourceId& id) const {
        if (is_kept()) std::ranges::copy(id, words_ + 2 * pages_ + 1);
    }
    bool is_handed_over() const { return is_kept() && handed_over().load() != 0; }
    // Before: set_present() for each page. The pages, their parts and the source do not change
    // until set_handed_over(false).
    void set_handed_over(bool value) const {
        if (is_kept()) handed_over().store(value ? 1 : 0);
    }

 private:
    std::atomic_ref<std::uint64_t> marks(std::uint64_t page) const {
        GPUNBD_ASSERT(page < pages_, "a cache has marks for each of its pages");
        return std::atomic_ref(words_[page]);
    }
    std::atomic_ref<std::uint64_t> handed_over() const {
        return std::atomic_ref(words_[2 * pages_]);
    }

    std::uint64_t* words_ = nullptr;
    std::uint64_t pages_ = 0;
};

}  // namespace gpunbd::storage
