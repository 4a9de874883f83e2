#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "storage/base/counter.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/base/status.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage {

// A change of the contents that a source keeps, or a flush. It belongs to the source, and must not
// move, from the call with it until its page request is complete.
struct SourceRequest {
    bool is_durable = false;  // FUA: complete once a loss of power does not undo it
    Status status = Status::ok;
    PageRequest* request = nullptr;  // null: it has not ended yet
    // For the source.
    std::uint64_t pages_left = 0;                // that are not in the source
    std::optional<std::uint32_t> failures = {};  // of its device, when the first page was begun
    SourceRequest* next = nullptr;
};

// A WRITE_ZEROES or TRIM for a source.
struct ZeroRequest {
    SourceRequest request = {};
    std::uint64_t offset = 0;  // bytes, in the volume
    std::uint64_t length = 0;
    bool keeps_space = false;     // NO_HOLE
    bool is_trim = false;         // the source may do nothing
    ZeroRequest* next = nullptr;  // for the source
};

class OriginTimes;
class PageCache;

// Where the pages of a volume come from that are not in its memory: see Volume::set_source(). Any
// thread may call these functions. They do not block.
class PageSource {
 public:
    virtual ~PageSource() = default;

    // Not null: the volume is a cache of this source.
    virtual PageCache* cache() { return nullptr; }
    // Whether the page has contents. Otherwise it reads as zeroes.
    virtual bool has(std::uint64_t page) const = 0;
    // Whether some of these parts, of a page that the volume does not have, have to be fetched.
    virtual bool lacks(std::uint64_t page, Parts parts) const = 0;
    // A page of another volume that has the contents of these parts, pinned for reading; a hole:
    // there is none.
    virtual PageRef find(std::uint64_t page, Parts parts) const = 0;
    // Brings `request.parts` of the page `request.number` where the volume or find() has them, and
    // completes the request; io_error: they cannot be read. They may be gone again when the waiter
    // looks.
    virtual void fetch(PageRequest& request) noexcept = 0;
    // The same, for a write: brings them into the volume, and a page without contents for no parts.
    virtual void map(PageRequest& request) noexcept = 0;
    // Provides a free page for a write of the whole page `request.number`, and completes the
    // request. Another writer may have taken it when the waiter looks.
    virtual void make_room(PageRequest& request) noexcept = 0;
    // The page reads as zeroes from now on, unless the volume has it. For a source without cache().
    virtual void zeroed(std::uint64_t page) = 0;
};

// A source of which the volume is a cache, so that pages can be dropped, and written ones go to the
// source.
class PageCache : public PageSource {
 public:
    struct Counters {
        Counter misses;      // requests that waited for a page
        Counter fetched;     // pages that came into memory because a client needed a part
        Counter prefetched;  // pages that came into memory ahead of a client
        Counter wasted;      // of these, pages that were evicted before a client used them
        Counter evicted;     // pages that were dropped
        Counter errors;      // pages that could not be read, and failed writes and flushes
        Counter written;     // bytes that were written to the source
        Counter read_bytes;  // that were read from it
    };
    // What the source does not have yet.
    struct Unwritten {
        std::uint64_t bytes = 0;
        double age = 0;  // of the oldest of these, seconds
    };

    PageCache* cache() final { return this; }
    PageRef find(std::uint64_t, Parts) const final { return {}; }
    void zeroed(std::uint64_t) final {}

    // For users: a path or an address.
    virtual const std::string& name() const = 0;
    virtual bool can_be_written_to() const = 0;
    virtual const Counters& counters() const = 0;
    virtual const OriginTimes& times() const = 0;
    virtual Unwritten unwritten() const = 0;

    // The page is not in memory any more. False: it has to stay, until it has been written.
    virtual bool drop(std::uint64_t page) = 0;
    // Drops so many pages that were not used recently, and need not be written. Returns how many
    // there were; none while it is paused.
    virtual std::uint64_t evict(std::uint64_t pages) = 0;
    // Pages of the range that are absent are read before a client needs them, as far as the memory
    // goes. Does not block; they come later, or not at all.
    virtual void prefetch(std::uint64_t offset, std::uint64_t length) noexcept = 0;

    // Until resume(), it begins no work that no client waits for, so that another process can take
    // over the volume and its source once is_paused() is true and no client has a request. A flush
    // fails. If it is destroyed meanwhile, it writes nothing.
    virtual void pause() noexcept = 0;
    virtual bool is_paused() const = 0;
    // The reason for users why another process cannot take it over now.
    virtual std::optional<std::string> why_it_stays() const = 0;
    // Call it once it is paused: until resume(), the table tells the other process what is in
    // memory. Returns why_it_stays().
    virtual std::optional<std::string> hand_over() = 0;
    // Whether all that is unwritten is written as soon as possible, so that it can end soon.
    virtual void set_draining(bool is_draining) noexcept = 0;
    virtual void resume() noexcept = 0;
    // A copy of the descriptor that has the lock on the source, for that process; empty: it needs
    // none. Throws std::system_error if there is none.
    virtual OwnedFd lock() const = 0;

    // The following functions do not block, and are for a source that can be written to.
    //
    // A write to this page begins. The page stays in memory until end_write(), unless its device
    // fails. Empty: too much is unwritten, and `request` is completed when the caller may try
    // again.
    virtual std::optional<Status> begin_write(std::uint64_t page, SourceRequest& write,
                                              PageRequest& request) noexcept = 0;
    // How many pages one write begins before it ends the first of them, at most.
    virtual std::uint64_t pages_of_a_write() const = 0;
    // The write will change all of these parts of the page, which `target` pins for writing. Those
    // that have no contents get them from end_write(), and from nothing else until then. Call it
    // once for a page of a write. False: not now, and `request` is completed when the caller may
    // look for the page again.
    virtual bool begin_fill(std::uint64_t page, const PageRef& target, Parts parts,
                            SourceRequest& write, PageRequest& request) noexcept = 0;
    // The payload of the write is cut at this offset. If the write was filling the part that has
    // this byte, the rest of the part comes from the source. True: it is there. Otherwise `request`
    // is completed when the caller may call again.
    virtual bool fill_rest(std::uint64_t offset, SourceRequest& write,
                           PageRequest& request) noexcept = 0;
    // `length` bytes from `offset` on, in one page, may have been changed, and the first `filled`
    // of these have been: parts that the write was filling have contents if they lie there.
    // `write` is complete once its pages are as safe as the source promises for a write; see
    // finish().
    virtual void end_write(std::uint64_t offset, std::uint64_t length, std::uint64_t filled,
                           SourceRequest& write) noexcept = 0;
    // The write has ended all of its pages. True: it is complete. Otherwise `request` is completed.
    virtual bool finish(SourceRequest& write, PageRequest& request) noexcept = 0;
    virtual void zero(ZeroRequest& zero, PageRequest& request) noexcept = 0;
    // Everything that was complete before survives a loss of power when this is complete.
    virtual void flush(SourceRequest& flush, PageRequest& request) noexcept = 0;
    // The same. Blocks.
    Status flush_now();
};

}  // namespace gpunbd::storage
