// A channel: one worker's own way to one device. It queues copies during a round of the worker's
// event loop. Polled, it submits them together and tells which have ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/chained_queue.hpp"
#include "storage/devices/channel_counters.hpp"
#include "storage/devices/staging_arena.hpp"
#include "storage/histogram.hpp"
#include "storage/status.hpp"

namespace gpunbd::storage {

struct Slab;
struct Copy;
struct Policy;

class CopyOwner {
 public:
    // Called from Channel::poll() on the channel's thread.
    virtual void copy_done(Copy& copy) = 0;

 protected:
    ~CopyOwner() = default;
};

// One contiguous piece between staging memory and device memory. It belongs to the channel from
// enqueue() until copy_done(), whatever becomes of the client.
struct Copy {
    enum class Kind : std::uint8_t { read, write, zero };  // as seen by the client
    Kind kind = Kind::read;
    Status status = Status::ok;    // set before copy_done()
    std::uint32_t length = 0;      // bytes
    std::uint64_t address = 0;     // in the device's address space
    std::byte* cpu = nullptr;      // the same place in the CPU's, or null
    std::byte* staging = nullptr;  // null for Kind::zero
    CopyOwner* owner = nullptr;
    Copy* next = nullptr;    // the channel's
    bool submitted = false;  // the trace's, as is the time of the last step
    TraceClock::time_point since;
};

using CopyQueue = ChainedQueue<Copy>;

// Where the time of copies goes.
struct ChannelTrace {
    Histogram queued;     // enqueue() -> handed to the device
    Histogram submitted;  // handed to the device -> ended
};

// The knobs of the pinned pipeline.
struct ChannelOptions {
    std::uint32_t chunk_size = 0;   // bytes, a power of two: the longest copy; 0: the device's
    std::uint32_t slots = 2;        // chunks of one transfer in flight on each of its devices
    std::size_t pinned = 16 << 20;  // bytes of staging memory per direction, a power of two
    ChannelTrace* trace = nullptr;  // not owned; null: none is kept
    // Which ways copies to a GPU take; read while the channel is opened. Null: the device decides.
    const Policy* policy = nullptr;
};

class Channel {
 public:
    explicit Channel(const ChannelOptions& options) : options_(options) {
        if (options_.chunk_size == 0) options_.chunk_size = default_chunk;
        if (options_.chunk_size > options_.pinned) {
            options_.chunk_size = static_cast<std::uint32_t>(options_.pinned);
        }
    }
    virtual ~Channel() = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    const ChannelOptions& options() const { return options_; }
    // Separate memory for reads and writes: neither can starve the other.
    StagingArena& read_staging() { return read_staging_; }
    StagingArena& write_staging() { return write_staging_; }
    const StagingArena& read_staging() const { return read_staging_; }
    const StagingArena& write_staging() const { return write_staging_; }
    const ChannelCounters& counters() const { return counters_; }
    // Payload was received straight into the slab's mapping, or is sent straight from it.
    void moves_in_place(Copy::Kind direction, std::uint64_t length) {
        counters_.moved(ChannelCounters::in_place, static_cast<std::size_t>(direction), length);
    }

    // May payload of this length be received straight into the slab's mapping (writes), or sent
    // straight from it (reads)? Where not, it passes through staging memory.
    virtual bool receives_into(const Slab& slab, std::uint32_t length) const = 0;
    virtual bool sends_from(const Slab& slab, std::uint32_t length) const = 0;

    void enqueue(Copy& copy) {
        if (options_.trace != nullptr) {
            copy.submitted = false;
            copy.since = TraceClock::now();
        }
        queued_.push(copy);
        ++unfinished_;
    }

    // Submits what is queued, tells the copies that have ended, and wakes those who wait for
    // staging memory.
    void poll() {
        if (options_.trace != nullptr) trace_submission();
        if (unfinished_ != 0) progress(queued_);
        read_staging_.wake();
        write_staging_.wake();
    }
    // Must poll() be called again soon?
    bool busy() const {
        return unfinished_ != 0 || read_staging_.can_wake() || write_staging_.can_wake();
    }

 protected:
    // Takes copies off `queued`, starts them, and finishes those that have ended. Does not block.
    virtual void progress(CopyQueue& queued) = 0;
    void finish(Copy& copy, Status status) {
        --unfinished_;
        copy.status = status;
        if (status != Status::ok) counters_.failures.add();
        if (options_.trace != nullptr) {
            options_.trace->submitted.record(TraceClock::now() - copy.since);
        }
        copy.owner->copy_done(copy);
    }
    std::uint32_t unfinished() const { return unfinished_; }
    // A copy begins.
    void count(PathKind path, const Copy& copy) {
        counters_.moved(static_cast<std::size_t>(path), static_cast<std::size_t>(copy.kind),
                        copy.length);
    }

    static constexpr std::uint32_t default_chunk = 1 << 20;  // bytes

    ChannelOptions options_;
    StagingArena read_staging_;
    StagingArena write_staging_;

 private:
    void trace_submission() {
        const TraceClock::time_point now = TraceClock::now();
        for (Copy* copy = queued_.front(); copy != nullptr; copy = copy->next) {
            if (copy->submitted) continue;
            copy->submitted = true;
            options_.trace->queued.record(now - copy->since);
            copy->since = now;
        }
    }

    CopyQueue queued_;
    std::uint32_t unfinished_ = 0;
    ChannelCounters counters_;
};

}  // namespace gpunbd::storage
