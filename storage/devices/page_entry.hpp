// One entry of a page table: a word that is loaded and stored atomically and that is valid in any
// process. It contains indices, not pointers.
//
// Which lock guards an entry: any thread loads it without a lock. A thread that stores it holds the
// lock of one page pool. If the entry is mapped, also if the page is moving or shared, that is the
// pool which the page belongs to, maybe one of spill memory. If the entry is a hole, it is the pool
// of the device on which the layout places the page, even if a page of spill memory is mapped then.
// Annotations cannot express this rule, because the lock depends on the contents of the entry.
#pragma once

#include <atomic>
#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/base/atomic.hpp"

namespace gpunbd::storage {

using PageIndex = std::uint32_t;  // within one pool

// The life of an entry. `retired` and `moving` keep the page of the state before; an entry that is
// mapped or that ends a move may refer to another page than before.
//
//              map, replace                      begin_move
//    hole <-------------------> mapped <-------------------------> moving
//     ^ |                       ^  | ^           end of a move      ^ |
//     | |       unmap, returns  |  | |                              | | end of a move
//     | |   retired <-----------+--+ | share             begin_move | v
//     | |     |  |   map, replace |  +------------------------> shared
//     | |     |  +----------------+    claim, copy, replace        ^
//     | |     | take_over                                          |
//     | +-----|-------------- share, in the table of a clone ------+
//     +-------+
//
// unmap makes a hole of every state; `shared` returns, too, if there is no other table. In the
// table of a clone, share makes a hole `moving` while the page of the original table moves.
class PageEntry {
 public:
    // The zero word of a new table is a hole. A state has 8 bits. Those with a page are odd.
    enum class State : std::uint8_t {
        hole = 0,
        mapped = 1,
        retired = 2,  // a hole; its former page may still be pinned
        moving = 3,   // mapped; the page is being copied and must not be written
        shared = 5,   // mapped, maybe in other tables too; the page must not be written
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
    static constexpr PageEntry shared(std::uint32_t device, PageIndex page) {
        return PageEntry(State::shared, device, page);
    }

    constexpr State state() const { return static_cast<State>(word_ >> 56); }
    constexpr bool is_known() const { return state() <= State::moving || state() == State::shared; }
    constexpr bool is_mapped() const { return (word_ >> 56 & 1) != 0; }
    constexpr bool is_writable() const { return state() == State::mapped; }
    constexpr bool is_moving() const { return state() == State::moving; }
    constexpr bool is_shared() const { return state() == State::shared; }
    constexpr std::uint32_t device() const {
        GPUNBD_ASSERT(has_location(), "a hole has no device");
        return static_cast<std::uint32_t>(word_ >> 32 & 0xffff);
    }
    constexpr PageIndex page() const {
        GPUNBD_ASSERT(has_location(), "a hole has no page");
        return static_cast<PageIndex>(word_);
    }
    constexpr std::uint64_t word() const { return word_; }
    // Whether both are mapped to the same page of the same volume or of volumes that share pages.
    constexpr bool has_page_of(PageEntry other) const {
        constexpr std::uint64_t location = (std::uint64_t{1} << 48) - 1;
        return is_mapped() && other.is_mapped() && ((word_ ^ other.word_) & location) == 0;
    }

    constexpr bool operator==(const PageEntry&) const = default;

 private:
    constexpr PageEntry(State state, std::uint32_t device, PageIndex page)
        : word_(std::uint64_t{static_cast<std::uint8_t>(state)} << 56 |
                std::uint64_t{device & 0xffff} << 32 | page) {
        GPUNBD_ASSERT(device <= 0xffff, "the index of a device fits into the 16 bits of an entry");
    }
    constexpr bool has_location() const { return is_mapped() || state() == State::retired; }

    std::uint64_t word_ = 0;
};

// The valid transitions, see the drawing. A state that no version of this program knows is not one.
constexpr bool may_follow(PageEntry::State from, PageEntry::State to) {
    using enum PageEntry::State;
    switch (from) {
        case hole:
            return to != retired;
        case mapped:
            return true;
        case retired:
            return to == hole || to == mapped;
        case moving:
            return to == hole || to == mapped || to == shared;
        case shared:
            return to != shared;
    }
    return to == hole;
}
constexpr bool may_follow(PageEntry from, PageEntry to) {
    using enum PageEntry::State;
    if (!may_follow(from.state(), to.state())) return false;
    const bool may_change_page =
        !from.is_mapped() || from.is_moving() || to.state() == hole || to.state() == mapped;
    return may_change_page || (from.device() == to.device() && from.page() == to.page());
}

// The location of an entry. The lock that become() needs is described above.
class EntrySlot {
 public:
    static_assert(AtomicRef<std::uint64_t>::is_always_lock_free);

    EntrySlot() = default;  // no location
    explicit EntrySlot(std::uint64_t& word) : word_(&word) {}

    PageEntry load(std::memory_order order = std::memory_order_seq_cst) const {
        GPUNBD_ASSERT(word_ != nullptr, "an entry that is loaded is in a table");
        return PageEntry(AtomicRef<std::uint64_t>(*word_).load(order));
    }
    void become(PageEntry next) const {
        GPUNBD_ASSERT(word_ != nullptr, "an entry that changes is in a table");
        GPUNBD_ASSERT(may_follow(load(std::memory_order_relaxed), next),
                      "an entry follows its life, see the drawing");
        AtomicRef<std::uint64_t>(*word_).store(next.word());
    }

 private:
    std::uint64_t* word_ = nullptr;
};

}  // namespace gpunbd::storage
