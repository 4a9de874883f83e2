// The threads that move pages together. Copies into fresh memory are limited by the CPU, which
// takes the page faults. Each thread has its own channels, and sleeps while there is nothing to
// move.
#pragma once

#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/migration/page_mover.hpp"

namespace gpunbd::storage {

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

    // The work of one round, which every thread does.
    struct Work {
        std::span<Device* const> to_open = {};
        MoveQueue* queue = nullptr;
    };

    void start_threads();
    void run();
    static bool perform(PageMover& mover, const Work& work);
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
