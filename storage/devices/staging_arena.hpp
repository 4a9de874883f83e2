// Staging memory of one channel and direction: a buddy allocator over one pinned region, and a
// queue of those who wait for a piece. It allocates nothing itself and is used by one thread.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/counter.hpp"

namespace gpunbd::storage {

// Somebody who was told that there is no staging memory now.
class StagingWaiter {
 public:
    virtual void staging_available() = 0;

 protected:
    virtual ~StagingWaiter() = default;

 private:
    friend class StagingArena;
    using Place =  // in the queue, which it leaves in constant time
        boost::intrusive::list_member_hook<
            boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    Place place_;
};

class StagingArena {
 public:
    static constexpr std::size_t smallest = 4096;  // bytes; shorter requests are rounded up

    // Lends `memory` (not owned; `bytes` a power of two, at least `smallest`).
    void adopt(std::byte* memory, std::size_t bytes);

    // A piece of at least `length` bytes, or null. The pieces that one borrower holds (`held`,
    // bytes, kept up to date here) may never exceed what is left free: one slow client cannot take
    // it all. Its first piece is free of that rule, and so is the first piece of all here: whoever
    // is refused can count on something to be given back to this arena.
    std::byte* take(std::size_t length, std::size_t& held);
    void give_back(std::byte* piece, std::size_t length, std::size_t& held);

    // Any thread may ask these three, once it has been adopted.
    std::size_t free_bytes() const { return free_bytes_.value(); }
    std::size_t largest() const { return bytes_; }
    std::uint64_t waits() const { return waits_.value(); }  // how often somebody found nothing

    // Waiters are woken in order from wake(), only after something was given back; one that still
    // finds nothing waits again.
    void wait(StagingWaiter& waiter);
    static void stop_waiting(StagingWaiter& waiter) { waiter.place_.unlink(); }
    bool waited_for() const { return !waiters_.empty() || !to_wake_.empty(); }
    bool can_wake() const { return (returned_ && !waiters_.empty()) || !to_wake_.empty(); }
    void wake();

 private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct Block {  // the state of a block, kept at the index of its first unit
        std::uint32_t next = none;
        std::uint32_t previous = none;
        std::uint8_t order = 0;
        bool free = false;
    };
    using Waiters = boost::intrusive::list<
        StagingWaiter,
        boost::intrusive::member_hook<StagingWaiter, StagingWaiter::Place, &StagingWaiter::place_>,
        boost::intrusive::constant_time_size<false>>;
    static unsigned order_of(std::size_t length);
    void push_free(std::uint32_t index, unsigned order);
    void remove_free(std::uint32_t index);

    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0;
    Counter free_bytes_;
    Counter waits_;
    std::vector<Block> blocks_;              // one per unit of `smallest` bytes
    std::vector<std::uint32_t> free_lists_;  // heads, by order
    Waiters waiters_;
    Waiters to_wake_;  // within wake(): those who waited when it began
    bool returned_ = false;
};

}  // namespace gpunbd::storage
