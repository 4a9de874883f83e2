#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/devices/channels.hpp"
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

// A list of pages that several threads move.
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

// Moves pages between the pools of a volume, several at a time, through channels of its own.
// Clients keep reading the pages; those that write to one wait until it has moved.
class PageMover {
 public:
    // Enough to copy on the device while the CPU copies too. More would let writers wait longer.
    static constexpr std::size_t pages_at_a_time = 4;

    // For the calling thread, which also destroys it.
    explicit PageMover(const ChannelOptions& options) : channels_(options) {}

    // Throws what Device::open_channel() throws.
    void open(Device& device) { channels_.open(device); }
    // Moves pages of the queue until none is left, and sets their outcomes. Other movers may take
    // pages of the same queue. Blocks. The channels of all these devices are open.
    void move(MoveQueue& queue) noexcept;

 private:
    // One page on its way. It is copied in chunks, one after another.
    class Move final : private CopyOwner {
     public:
        bool idle() const { return state_ == State::idle; }
        // False: the page does not move.
        bool begin(PageToMove& page);
        // Continues as far as possible without waiting. False: nothing was possible. Idle
        // afterwards: the move has ended.
        bool advance(Channels& channels);

     private:
        enum class State : std::uint8_t {
            idle,
            next_chunk,
            reading,
            read,
            writing,
            written,
            failed
        };

        // False: there is no staging memory now.
        bool start_read(Channels& channels);
        bool start_write(Channels& channels);
        void end_chunk(Channels& channels);
        void commit();
        void fail(Channels& channels);
        void end(PageToMove::Outcome outcome);
        void release_staging(Channels& channels);
        void copy_done(Copy& copy) override;

        State state_ = State::idle;
        PageToMove* page_ = nullptr;
        PagePool* to_ = nullptr;
        PageRef source_;
        PageIndex target_ = 0;
        std::uint64_t at_ = 0;             // of the chunk within the page
        std::uint32_t length_ = 0;         // of the chunk
        const std::byte* data_ = nullptr;  // the contents of the chunk
        std::byte* read_staging_ = nullptr;
        std::byte* write_staging_ = nullptr;
        std::size_t read_held_ = 0;
        std::size_t write_held_ = 0;
        Copy copy_;
    };

    Channels channels_;
    std::array<Move, pages_at_a_time> moves_;
};

// The threads that move pages together. Copies into fresh memory are limited by the CPU, which
// takes the page faults. Each thread has its own channels, and sleeps while there is nothing to
// move.
class MoverPool {
 public:
    // Half of the CPUs, at most 8: that many copy faster than a GPU's link, and clients need the
    // rest.
    static unsigned default_threads();

    // `threads` includes the calling thread, which makes all calls; 0 is 1. The others are started
    // by the first open() and inherit the signal mask. They divide options.pinned, but none has
    // less than `least_pinned` of it.
    MoverPool(const ChannelOptions& options, unsigned threads);
    ~MoverPool();
    MoverPool(const MoverPool&) = delete;
    MoverPool& operator=(const MoverPool&) = delete;

    // Opens a channel to each device in each thread. Throws what Device::open_channel() throws in
    // the calling thread. Another thread that cannot be started, or that cannot open a channel,
    // leaves the pool.
    void open(std::span<Device* const> devices);
    // Moves the pages and sets their outcomes. Blocks. The devices are open.
    void move(std::span<PageToMove> pages);

    unsigned threads() const;  // now, with the calling one

 private:
    static constexpr std::size_t least_pinned = 4 << 20;  // bytes: a few chunks

    // A GPU's driver blocks other calls while a channel is opened. If all threads did that at once,
    // clients would wait for all of them.
    Mutex opening_;
    // The work of one round, which every thread does.
    struct Work {
        std::span<Device* const> to_open = {};
        MoveQueue* queue = nullptr;
    };

    void start_threads();
    void run();
    bool perform(PageMover& mover, const Work& work);
    void begin_round(const Work& work);
    void end_round();

    const ChannelOptions options_;
    const unsigned wanted_;        // threads besides the calling one
    PageMover mover_;              // of the calling thread
    std::vector<Device*> opened_;  // in all threads
    std::vector<std::thread> threads_;
    bool started_ = false;
    mutable Mutex mutex_;
    Condition begun_;  // a round, or the end of the pool
    Condition ended_;  // a round
    Work work_ GUARDED_BY(mutex_);
    std::uint64_t round_ GUARDED_BY(mutex_) = 0;
    unsigned working_ GUARDED_BY(mutex_) = 0;  // threads that have not finished the round
    unsigned living_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace gpunbd::storage
