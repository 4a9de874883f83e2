// One entry of a page table: a word that is loaded and stored atomically and that is valid in any
// process. It contains indices, not pointers.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpunbd::storage {

using PageIndex = std::uint32_t;  // within one pool

class PageEntry {
 public:
    // The zero word of a new table is a hole. A state has 8 bits.
    enum class State : std::uint8_t {
        hole = 0,
        mapped = 1,
        retired = 2,  // a hole; its former page may still be pinned
        moving = 3,   // mapped; the page is being copied to another pool and must not be written
    };

    constexpr PageEntry() = default;  // a hole
    constexpr explicit PageEntry(std::uint64_t word) : word_(word) {}
    static constexpr PageEntry mapped(std::uint32_t device, PageIndex page) {
        return PageEntry(State::mapped, device, page);
    }
    static constexpr PageEntry retired(std::uint32_t device, PageIndex page) {
        return PageEntry(State::retired, device, page);
    }

    static constexpr PageEntry moving(std::uint32_t device, PageIndex page) {
        return PageEntry(State::moving, device, page);
    }

    constexpr State state() const { return static_cast<State>(word_ >> 56); }
    constexpr bool is_mapped() const { return state() == State::mapped || is_moving(); }
    constexpr bool is_moving() const { return state() == State::moving; }
    // Only of mapped, moving and retired pages.
    constexpr std::uint32_t device() const {
        return static_cast<std::uint32_t>(word_ >> 32 & 0xffff);
    }
    constexpr PageIndex page() const { return static_cast<PageIndex>(word_); }
    constexpr std::uint64_t word() const { return word_; }

    constexpr bool operator==(const PageEntry&) const = default;

 private:
    constexpr PageEntry(State state, std::uint32_t device, PageIndex page)
        : word_(std::uint64_t{static_cast<std::uint8_t>(state)} << 56 |
                std::uint64_t{device & 0xffff} << 32 | page) {}

    std::uint64_t word_ = 0;
};

// The location of an entry. Any thread may load it. It is stored only under the lock of the page
// pool that its page belongs to; for a hole, of the pool of the device on which the layout places
// the page.
class EntrySlot {
 public:
    static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

    EntrySlot() = default;  // no location
    explicit EntrySlot(std::uint64_t& word) : word_(&word) {}

    PageEntry load(std::memory_order order = std::memory_order_seq_cst) const {
        return PageEntry(std::atomic_ref(*word_).load(order));
    }
    void store(PageEntry entry) const { std::atomic_ref(*word_).store(entry.word()); }

 private:
    std::uint64_t* word_ = nullptr;
};

}  // namespace gpunbd::storage
