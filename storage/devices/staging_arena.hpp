// Staging memory of one channel and direction: a buddy allocator over one pinned region, with a
// queue of waiters. It does not allocate memory and is used by one thread.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/base/counter.hpp"

namespace gpunbd::storage {

// A transfer that waits for staging memory.
class StagingWaiter {
 public:
    virtual void staging_available() = 0;

 protected:
    virtual ~StagingWaiter() = default;

 private:
    friend class StagingArena;
    using Hook =  // removes itself from the queue in constant time
        boost::intrusive::list_member_hook<
            boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    Hook hook_;
};

class StagingArena {
 public:
    static constexpr std::size_t smallest = 4096;  // bytes; shorter requests are rounded up
    // Longer pieces leave a part of the memory, 1/reserve, to shorter ones, which would have to
    // wait for the clients of the longer ones otherwise.
    static constexpr std::size_t short_piece = 64 * 1024;  // bytes
    static constexpr std::size_t reserve = 16;

    // Uses `memory`, which is not owned. `bytes` is at least `smallest`.
    void assign(std::byte* memory, std::size_t bytes);

    // Returns a piece of at least `length` bytes, or null. The pieces of one borrower (`held`, in
    // bytes, updated here) may not exceed what remains free, so that one slow client cannot take
    // everything. The first piece of a borrower, and the first piece of all, are exempt: a borrower
    // that is refused can rely on another piece being returned to this arena. Long pieces leave the
    // reserve, unless they are longer than an eighth of the memory.
    std::byte* take(std::size_t length, std::size_t& held);
    // The same without these limits, for a borrower that has just given back as much: others may
    // hold memory until it continues.
    std::byte* take_again(std::size_t length, std::size_t& held);
    void give_back(std::byte* piece, std::size_t length, std::size_t& held);

    // Any thread may call these three after assign().
    std::size_t free_bytes() const { return free_bytes_.value(); }
    std::size_t largest() const { return bytes_; }
    std::uint64_t waits() const { return waits_.value(); }  // how often there was no memory

    // wake() calls waiters in order, and only after memory was returned. A waiter that still gets
    // none has to wait again.
    void wait(StagingWaiter& waiter);
    static void stop_waiting(StagingWaiter& waiter) { waiter.hook_.unlink(); }
    bool waited_for() const { return !waiters_.empty() || !to_wake_.empty(); }
    bool can_wake() const { return (returned_ && !waiters_.empty()) || !to_wake_.empty(); }
    void wake();

 private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct Block {  // kept at the index of the first unit of the block
        std::uint32_t next = none;
        std::uint32_t previous = none;
        std::uint8_t order = 0;
        bool free = false;
    };
    using Waiters = boost::intrusive::list<
        StagingWaiter,
        boost::intrusive::member_hook<StagingWaiter, StagingWaiter::Hook, &StagingWaiter::hook_>,
        boost::intrusive::constant_time_size<false>>;
    static unsigned order_of(std::size_t length);
    void push_free(std::uint32_t index, unsigned order);
    void remove_free(std::uint32_t index);

    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0;
    Counter free_bytes_;
    Counter waits_;
    std::vector<Block> blocks_;              // one per unit of `smallest` bytes
    std::vector<std::uint32_t> free_lists_;  // the first block of each order
    Waiters waiters_;
    Waiters to_wake_;  // the waiters that wake() is calling
    bool returned_ = false;
};

}  // namespace gpunbd::storage
