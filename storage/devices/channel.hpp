#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/base/chained_queue.hpp"
#include "storage/base/counter.hpp"
#include "storage/base/histogram.hpp"
#include "storage/base/private_memory.hpp"
#include "storage/base/status.hpp"
#include "storage/devices/staging_arena.hpp"

namespace gpunbd::storage {

// The paths that bytes take between staging memory and device memory, as policies name them and
// counters count them.
enum class PathKind : std::uint8_t {
    mapping,            // the CPU stores into the mapping
    streaming_load,     // the CPU loads out of the mapping
    copy_engine,        // an asynchronous copy (for zeroes: an asynchronous memset)
    engine_batch,       // one call of the copy engines for all waiting copies
    persistent_kernel,  // a lingering kernel serves it from a mailbox, without a driver call
    kernel,             // one gather/scatter kernel for all waiting copies
    managed,            // the CPU accesses managed memory and keeps its pages on the host
    file,               // read from or written to a file
};
inline constexpr std::size_t path_kinds = 8;

constexpr const char* to_text(PathKind path) {
    switch (path) {
        case PathKind::mapping:
            return "mapping";
        case PathKind::streaming_load:
            return "streaming load";
        case PathKind::copy_engine:
            return "copy engine";
        case PathKind::engine_batch:
            return "engine batch";
        case PathKind::persistent_kernel:
            return "persistent kernel";
        case PathKind::kernel:
            return "kernel";
        case PathKind::managed:
            return "managed memory";
        case PathKind::file:
            return "file I/O";
    }
    return "?";
}

// What one channel has copied, by path. Only its worker writes these counters.
struct ChannelCounters {
    static constexpr std::size_t in_place =
        path_kinds;  // an additional path: received into or sent from the mapping without a copy
    static constexpr std::size_t paths = path_kinds + 1;
    static constexpr std::size_t directions = 3;  // as in Copy::Kind: read, write, zero

    struct PathCounts {
        Counter copies;
        Counter bytes;
    };

    void moved(std::size_t path, std::size_t direction, std::uint64_t length) {
        GPUNBD_ASSERT(path < paths && direction < directions,
                      "each path and each direction has a counter");
        PathCounts& moved = by_path[path][direction];
        moved.copies.add();
        moved.bytes.add(length);
    }

    std::array<std::array<PathCounts, directions>, paths> by_path;
    Counter failures;  // failed copies
};

struct Slab;
struct Copy;
struct Policy;

// A channel is one worker's connection to one device. It queues copies during a round of the
// worker's event loop. poll() submits them together and completes those that have ended.
class CopyOwner {
 public:
    // Called from Channel::poll() on the channel's thread.
    virtual void copy_done(Copy& copy) = 0;

 protected:
    ~CopyOwner() = default;
};

// One contiguous copy between staging memory and device memory. It belongs to the channel from
// enqueue() until copy_done(), even if the client disconnects. The channel may change the staging
// memory of a write.
struct Copy {
    enum class Kind : std::uint8_t { read, write, zero };  // from the client's view

    // Describes the next copy. `cpu_address`: the mapping of `device_address`, or null.
    void prepare(Kind its_kind, std::uint32_t bytes, std::uint64_t device_address,
                 std::byte* cpu_address, std::byte* its_staging, CopyOwner& its_owner,
                 bool is_revocable = false) {
        GPUNBD_ASSERT(bytes != 0, "a copy of nothing does not end");
        GPUNBD_ASSERT((its_kind == Kind::zero) == (its_staging == nullptr),
                      "all copies but those of zeroes have staging memory");
        kind = its_kind;
        status = Status::ok;
        revocable = is_revocable;
        urgent = false;
        length = bytes;
        address = device_address;
        cpu = cpu_address;
        staging = its_staging;
        owner = &its_owner;
    }

    Kind kind = Kind::read;
    Status status = Status::ok;    // set before copy_done()
    bool revocable = false;        // see Slab::revocable
    bool urgent = false;           // of a client with few requests: before the copies of others
    std::uint32_t length = 0;      // bytes
    std::uint64_t address = 0;     // in the device's address space
    std::byte* cpu = nullptr;      // the same location in the CPU's address space, or null
    std::byte* staging = nullptr;  // null for Kind::zero
    CopyOwner* owner = nullptr;
    Copy* next = nullptr;    // used by the channel
    bool submitted = false;  // used by the trace, like `since`
    TraceClock::time_point since;
};

using CopyQueue = ChainedQueue<Copy>;

// Durations of copies.
struct ChannelTrace {
    Histogram queued;     // enqueue() -> submitted to the device
    Histogram submitted;  // submitted to the device -> completed
};

// Parameters of the staging pipeline.
struct ChannelOptions {
    std::uint32_t chunk_size = 0;   // bytes, a power of two; 0: the default of the device
    std::uint32_t slots = 2;        // chunks that one transfer may have in flight on each device
    std::size_t pinned = 16 << 20;  // bytes of staging memory per direction, a power of two
    ChannelTrace* trace = nullptr;  // not owned; null: no trace
    // Which paths copies to a GPU take; read while the channel is opened. Null: the device decides.
    const Policy* policy = nullptr;
};

class Channel {
 public:
    explicit Channel(const ChannelOptions& options) : options_(options) {
        if (options_.chunk_size == 0) options_.chunk_size = default_chunk;
        if (options_.chunk_size > options_.pinned) {
            options_.chunk_size = static_cast<std::uint32_t>(options_.pinned);
        }
        GPUNBD_ASSERT(std::has_single_bit(options_.chunk_size),
                      "chunks are pieces of staging memory, which are powers of two");
        GPUNBD_ASSERT(options_.slots != 0, "a transfer can make progress on each device");
        staged_bytes_ = options_.chunk_size;
    }
    virtual ~Channel() = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    const ChannelOptions& options() const { return options_; }
    // The longest copy of a request through staging memory, in bytes.
    std::uint32_t staged_bytes() const { return staged_bytes_; }
    // Reads and writes have separate memory, so that neither can starve the other.
    StagingArena& read_staging() { return read_staging_; }
    StagingArena& write_staging() { return write_staging_; }
    const StagingArena& read_staging() const { return read_staging_; }
    const StagingArena& write_staging() const { return write_staging_; }
    const ChannelCounters& counters() const { return counters_; }
    // Counts payload that was received into the slab's mapping, or is sent from it.
    void count_in_place(Copy::Kind direction, std::uint64_t length) {
        counters_.moved(ChannelCounters::in_place, static_cast<std::size_t>(direction), length);
    }

    // Whether payload of this length may be received directly into the slab's mapping. Otherwise it
    // passes through staging memory.
    virtual bool receives_into(const Slab& slab, std::uint32_t length) const = 0;

    void enqueue(Copy& copy) {
        GPUNBD_ASSERT(copy.owner != nullptr && copy.length != 0,
                      "a copy is prepared before it is enqueued");
        if (options_.trace != nullptr) {
            copy.submitted = false;
            copy.since = TraceClock::now();
        }
        queued_.push(copy);
        ++unfinished_;
    }

    // Submits queued copies, completes those that have ended, and wakes waiters for staging memory.
    void poll() {
        if (options_.trace != nullptr) trace_submission();
        if (unfinished_ != 0) progress(queued_);
        read_staging_.wake();
        write_staging_.wake();
    }
    // Whether poll() has to be called again soon.
    bool busy() const {
        return unfinished_ != 0 || read_staging_.can_wake() || write_staging_.can_wake();
    }
    // Whether copies only advance when other threads of this machine run. A worker with real-time
    // priority that polled without a pause would keep the CPU from them.
    virtual bool waits_for_threads() const { return false; }

 protected:
    // Takes copies off `queued`, starts them, and finishes those that have ended. Must not block.
    virtual void progress(CopyQueue& queued) = 0;
    void finish(Copy& copy, Status status) {
        GPUNBD_ASSERT(unfinished_ != 0, "a copy ends once");
        --unfinished_;
        copy.status = status;
        if (status != Status::ok) counters_.failures.add();
        if (options_.trace != nullptr) {
            options_.trace->submitted.record(TraceClock::now() - copy.since);
        }
        copy.owner->copy_done(copy);
    }
    std::uint32_t unfinished() const { return unfinished_; }
    // Counts a copy that starts.
    void count(PathKind path, const Copy& copy) {
        counters_.moved(static_cast<std::size_t>(path), static_cast<std::size_t>(copy.kind),
                        copy.length);
    }

    static constexpr std::uint32_t default_chunk = 1 << 20;  // bytes

    ChannelOptions options_;
    std::uint32_t staged_bytes_ = 0;
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

// The channel to memory that the CPU caches: payload is received into pages and sent from them, see
// Device::sends_in_place().
class InPlaceChannel final : public Channel {
 public:
    // Throws std::bad_alloc.
    explicit InPlaceChannel(const ChannelOptions& options);
    bool receives_into(const Slab&, std::uint32_t) const override { return true; }

 protected:
    // Copies pages that must not be sent in place, and zeroes. Long copies are spread over several
    // polls.
    void progress(CopyQueue& queued) override;

 private:
    std::uint32_t done_ = 0;      // bytes of the first copy
    const PrivateMemory memory_;  // read staging
};

}  // namespace gpunbd::storage
