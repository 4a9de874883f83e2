#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/atomic.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/devices/page_parts.hpp"
#include "storage/pages/growing_array.hpp"

namespace gpunbd::storage {

enum class Access : std::uint8_t {
    read,
    write,
    send,  // the page itself is sent to a client, for as long as the client likes
};

// Counts the pins of each page of a pool. Every thread counts in a table of its own, so that
// threads that pin the same pages share no cache line. Only a thread that wants to free or to move
// a page reads all tables.
class PinCounts {
 public:
    PinCounts() = default;  // without pages
    // One table for each CPU, or as many as fit into `max_bytes`, but at least one.
    PinCounts(std::size_t pages, std::uint64_t max_bytes);
    // See GrowingArray::grow().
    void grow(std::size_t pages);

    // These functions are sequentially consistent: see PageStates::pin().
    // `access`: read or write.
    void add(PageIndex page, Access access) { mine()[page].fetch_add(one(access) + one_use); }
    void remove(PageIndex page, Access access) { mine()[page].fetch_sub(one(access)); }
    // After these have returned false, a thread that has not yet seen the page unmapped or moving
    // may still pin it briefly.
    bool any(PageIndex page) const { return sum(page) % one_use != 0; }
    bool any_writer(PageIndex page) const { return sum(page) % one_use >= one(Access::write); }
    // How often the page was pinned, modulo max_uses.
    static constexpr std::uint32_t max_uses = 1 << 20;
    std::uint32_t uses(PageIndex page) const {
        return static_cast<std::uint32_t>(sum(page) / one_use);
    }

 private:
    // Each count has three fields: 24 bits of readers, 20 bits of writers, 20 bits of uses. If
    // another thread removes a pin, one table is too high and one too low; the sum of all tables is
    // still right, modulo 2^64.
    using Table = GrowingArray<Atomic<std::uint64_t>>;
    static constexpr std::uint64_t one_use = std::uint64_t{1} << 44;
    static constexpr std::uint64_t one(Access access) {
        GPUNBD_ASSERT(access != Access::send, "pages that are sent have counts of their own");
        return access == Access::read ? 1 : std::uint64_t{1} << 24;
    }

    const Table& mine() const {
        if (thread_number_ == 0) thread_number_ = next_number();
        return tables_[thread_number_ & mask_];
    }
    static std::uint32_t next_number();
    std::uint64_t sum(PageIndex page) const;

    static constinit thread_local std::uint32_t thread_number_;  // 0: not assigned yet
    std::vector<Table> tables_;
    std::uint32_t mask_ = 0;
};

// Pages of a pool that are no longer mapped and may still be pinned. A write to the number of such
// a page gets the same page, cleared; until then the page keeps its contents for its pins. So a
// volume has no more pages than page numbers, unless pages move.
class RetiredPages {
 public:
    explicit RetiredPages(std::size_t pages) : retired_(pages), numbers_(pages) {}

    // Any thread. Sequentially consistent: see PageStates::pin(). On x86 and ARMv8 no test can tell
    // whether the store in add() is: it is ordered before PinCounts::any() by the pool's lock,
    // which is released and taken in between. C++ alone does not promise that.
    bool contains(PageIndex page) const { return retired_[page].load(); }

    // The caller holds the lock of the pool.
    //
    // Throws std::bad_alloc.
    void grow(std::size_t pages) {
        numbers_.resize(pages);
        retired_.grow(pages);
    }
    static constexpr std::uint64_t no_number = ~std::uint64_t{0};
    // `number`: the page number in the volume to which the page was mapped. no_number: its contents
    // are elsewhere, or will not be needed again.
    void add(PageIndex page, std::uint64_t number) {
        GPUNBD_ASSERT(!contains(page), "a page is retired once before it is reused");
        numbers_[page] = number;
        retired_[page].store(true);
        ++count_;
        if (number == no_number) ++unnumbered_;
    }
    void remove(PageIndex page) {
        GPUNBD_ASSERT(contains(page), "only a retired page is reused");
        GPUNBD_ASSERT(count_ != 0 && (numbers_[page] != no_number || unnumbered_ != 0),
                      "every retired page is counted");
        retired_[page].store(false);
        --count_;
        if (numbers_[page] == no_number) --unnumbered_;
    }
    bool contains(PageIndex page, std::uint64_t number) const {
        return contains(page) && numbers_[page] == number;
    }
    std::uint64_t count() const { return count_; }
    std::uint64_t unnumbered() const { return unnumbered_; }  // with no_number

 private:
    GrowingArray<Atomic<bool>> retired_;
    std::vector<std::uint64_t> numbers_;
    std::uint64_t count_ = 0;
    std::uint64_t unnumbered_ = 0;
};

// What a pool knows of each of its pages besides whether it is free: how many entries refer to it,
// how often it is pinned, whether it has lost its last entry while it may still be pinned, and
// which of its parts have no contents yet.
class PageStates {
 public:
    // `sends_in_place`: see Device.
    PageStates(std::size_t pages, std::uint64_t max_bytes_of_pins, bool sends_in_place)
        : sends_in_place_(sends_in_place),
          pins_(pages, max_bytes_of_pins),
          retired_(pages),
          sharers_(pages),
          claims_(pages),
          missing_(pages) {
        if (sends_in_place) sends_ = PinCounts(pages, max_bytes_of_pins);
    }

    // The caller holds the lock of the pool. Throws std::bad_alloc.
    void grow(std::size_t pages) {
        pins_.grow(pages);
        sends_.grow(pages);
        retired_.grow(pages);
        sharers_.grow(pages);
        claims_.grow(pages);
        missing_.grow(pages);
    }

    // Any thread calls the following functions. A pin holds a page if the caller still sees it
    // mapped after pin() has returned, and writable if it is a pin for writing. Otherwise the page
    // may be in use elsewhere, and the caller has to unpin it. Either the pinning thread sees that
    // the page is unmapped or moving, or the thread that changes this sees the pin; either the
    // unpinning thread sees that the page is retired, or the retiring thread sees that no pin is
    // left. This holds since each side stores before it loads, and these operations are
    // sequentially consistent.
    void pin(PageIndex page, Access access) {
        GPUNBD_ASSERT(access != Access::send || sends_in_place_,
                      "only pages that the CPU can send from are sent");
        access == Access::send ? sends_.add(page, Access::read) : pins_.add(page, access);
    }
    // True: the page is retired, and this may have been the last pin.
    bool unpin(PageIndex page, Access access) {
        access == Access::send ? sends_.remove(page, Access::read) : pins_.remove(page, access);
        return retired_.contains(page);
    }
    // Whether pages may be pinned for Access::send.
    bool sends_in_place() const { return sends_in_place_; }
    // How often the page was pinned, modulo 2^20.
    std::uint32_t uses(PageIndex page) const {
        return (pins_.uses(page) + sends_.uses(page)) % PinCounts::max_uses;
    }
    // Whether several entries refer to the page.
    bool is_shared(PageIndex page) const { return sharers(page) != 0; }
    // How many entries refer to the page, besides one.
    std::uint32_t sharers(PageIndex page) const { return sharers_[page].load(); }
    // How often a page that may have been shared has become writable, modulo 2^32. A thread that
    // reads the page notices by it whether the last table that has the page may have written to it:
    // the thread loads this before it sees the entry of its table, and again after it has read.
    std::uint32_t claims(PageIndex page) const {
        std::atomic_thread_fence(std::memory_order_acquire);  // after what was read
        return claims_[page].load(std::memory_order_acquire);
    }
    // The parts that must not be read, of a page that is pinned. They become fewer only.
    Parts missing(PageIndex page) const { return missing_[page].load(std::memory_order_acquire); }
    // These parts have contents now. The caller has pinned the page for writing, so it is not being
    // moved.
    void add_parts(PageIndex page, Parts parts) {
        missing_[page].fetch_and(~parts, std::memory_order_release);
    }
    // Of a page that was taken over, before anything uses it.
    void set_missing(PageIndex page, Parts parts) {
        missing_[page].store(parts, std::memory_order_release);
    }
    std::uint64_t mapped_pages() const { return mapped_pages_.load(std::memory_order_relaxed); }

    // The caller holds the lock that guards the entries of the page: see page_entry.hpp.
    //
    bool is_pinned(PageIndex page) const { return pins_.any(page) || sends_.any(page); }
    // After false, also without the lock: a page that several entries refer to is not sent.
    bool is_pinned_for_sending(PageIndex page) const { return sends_.any(page); }
    bool is_pinned_for_writing(PageIndex page) const { return pins_.any_writer(page); }
    // The page has its first entry, and so many more. `missing`: see missing().
    void add_first_entry(PageIndex page, std::uint32_t sharers = 0, Parts missing = 0) {
        GPUNBD_ASSERT(!retired_.contains(page), "a page that is mapped is not retired");
        GPUNBD_ASSERT(!is_shared(page), "a page that is mapped newly has one entry");
        sharers_[page].store(sharers, std::memory_order_relaxed);
        missing_[page].store(missing, std::memory_order_relaxed);  // seen with the entry
        mapped_pages_.fetch_add(1, std::memory_order_relaxed);
    }
    void add_entry(PageIndex page) { sharers_[page].fetch_add(1); }
    // True: it was the last one.
    bool remove_entry(PageIndex page) {
        if (is_shared(page)) {
            sharers_[page].fetch_sub(1, std::memory_order_relaxed);
            return false;
        }
        remove_all_entries(page);
        return true;
    }
    void claim(PageIndex page) {
        claims_[page].fetch_add(1);
        std::atomic_thread_fence(std::memory_order_seq_cst);  // before what is written
    }
    void remove_all_entries(PageIndex page) {
        const std::uint64_t mapped = mapped_pages_.fetch_sub(1, std::memory_order_relaxed);
        GPUNBD_ASSERT(mapped != 0, "a page that loses its last entry was counted");
        sharers_[page].store(0, std::memory_order_relaxed);
    }

    // Pages that are taken and filled before they are mapped: see PageAllocator::Purpose.
    void begin_filling() { filling_.fetch_add(1, std::memory_order_relaxed); }
    void end_filling() {
        const std::uint32_t filling = filling_.fetch_sub(1, std::memory_order_relaxed);
        GPUNBD_ASSERT(filling != 0,
                      "a page that was taken to be filled is mapped or given back once");
    }
    std::uint32_t filling() const { return filling_.load(std::memory_order_relaxed); }

    // The caller holds the lock of the pool.
    RetiredPages& retired() { return retired_; }
    const RetiredPages& retired() const { return retired_; }

 private:
    const bool sends_in_place_;
    PinCounts pins_;
    PinCounts sends_;  // those for Access::send
    RetiredPages retired_;
    GrowingArray<Atomic<std::uint32_t>> sharers_;
    GrowingArray<Atomic<std::uint32_t>> claims_;
    // Not Atomic: the interleaving tests have no caches, and these accesses would double their
    // time.
    GrowingArray<std::atomic<Parts>> missing_;
    Atomic<std::uint64_t> mapped_pages_{0};
    Atomic<std::uint32_t> filling_{0};
};

}  // namespace gpunbd::storage
