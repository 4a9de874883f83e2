// What is to be read from an origin, and in which order.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "storage/devices/page_completions.hpp"
#include "storage/devices/page_parts.hpp"
#include "storage/origins/busy_pages.hpp"
#include "storage/origins/page_bits.hpp"

namespace gpunbd::storage {

class Volume;

// The fetches of a cache: of pages that clients wait for, and of those that they may need next. A
// page has at most one, which a worker begins when no other one works on the page. The caller has
// a mutex, which also guards `busy`.
class Fetches {
 public:
    // `data`: which pages the origin has. `pages`: that fit into memory now, at most. All arguments
    // outlive this object.
    Fetches(const Volume& volume, const PageBits& data, BusyPages& busy,
            const Atomic<std::uint64_t>& pages)
        : volume_(volume), data_(data), busy_(busy), pages_in_memory_(pages) {}
    ~Fetches();
    Fetches(const Fetches&) = delete;
    Fetches& operator=(const Fetches&) = delete;

    // The parts of these that the origin has and the memory has not. Needs no mutex.
    static Parts absent(const Volume& volume, const PageBits& data, std::uint64_t page,
                        Parts parts);

    // A client waits for `request.parts` of the page. Throws std::bad_alloc, and nothing has
    // changed then.
    void add(PageRequest& request);
    // After add(): if clients read in sequence, reads what follows.
    void follow(std::uint64_t page, Parts parts) noexcept;
    // The bytes are read, as far as the memory goes, when there is nothing else to do. False: there
    // are too many such ranges, or there is no memory.
    bool prefetch(std::uint64_t offset, std::uint64_t length) noexcept;
    // The same for everything, until stop_filling().
    void fill_memory();
    void stop_filling() { next_of_all_ = end_of_all_; }

    bool reads_ahead() const { return !ahead_.empty(); }
    // Whether a client waits.
    bool are_wanted() const;
    // Whether memory that no page needs is taken for the fetch of this page, and no other.
    bool fills(std::uint64_t page) const { return fetches_.at(page).fills; }
    bool is_wanted(std::uint64_t page) const { return fetches_.at(page).is_wanted; }
    bool is_ahead(std::uint64_t page) const { return fetches_.at(page).is_ahead; }

    // The page that is fetched next: for a client, in a sequence, or to fill the memory. Throws
    // std::bad_alloc.
    std::optional<std::uint64_t> next_wanted() { return next_of(wanted_); }
    std::optional<std::uint64_t> next_in_sequence() { return next_of(ahead_); }
    std::optional<std::uint64_t> next_of_all();
    // The same for prefetch().
    struct Next {
        std::optional<std::uint64_t> page;
        bool is_more = false;  // there is no page yet, after many that need not be fetched
    };
    Next next_prefetched();

    // The parts that are read now. `page`: of next_…(), which exists until end().
    Parts begin(std::uint64_t page);
    // They have been read, or not. Returns the requests that waited; others wait for another fetch.
    PageRequests take_waiters(std::uint64_t page);
    // True: another fetch of the page follows.
    bool end(std::uint64_t page) noexcept;

 private:
    // Parts of a page that are to be fetched, or are being fetched.
    struct Fetch {
        Parts parts = 0;  // if it is running, these do not change
        PageRequests waiters = {};
        // After it, there is another one for these.
        Parts later_parts = 0;
        PageRequests later_waiters = {};
        bool is_running = false;
        bool is_wanted = false;  // by a client
        bool is_ahead = false;   // no client wanted it at first
        bool fills = false;
    };
    // Parts are numbered through all pages of the volume.
    struct PartRange {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
    };
    // Clients that read in sequence.
    struct Stream {
        std::uint64_t next = 0;    // the part after those that are read ahead
        std::uint64_t window = 0;  // how many parts were read ahead the last time
    };

    // How far is read ahead at most, in parts.
    std::uint64_t longest_window() const;
    std::optional<std::uint64_t> next_of(std::deque<std::uint64_t>& queue);
    // Those of the range in its first page.
    Parts first_of(PartRange range) const;
    Parts absent_of(std::uint64_t page, Parts parts) const {
        return absent(volume_, data_, page, parts);
    }
    // A fetch of the page reads these parts too, now (`joins_first`) or after its own. False: there
    // is none.
    bool joins(std::uint64_t page, Parts parts, bool joins_first);
    // `joins_first`: see joins(). Throws std::bad_alloc.
    void read_ahead(std::uint64_t page, Parts parts, bool joins_first);

    const Volume& volume_;
    const PageBits& data_;
    BusyPages& busy_;
    const Atomic<std::uint64_t>& pages_in_memory_;
    std::unordered_map<std::uint64_t, Fetch> fetches_;  // by page
    std::deque<std::uint64_t> wanted_;
    std::deque<std::uint64_t> ahead_;
    std::array<Stream, 8> streams_;
    std::uint32_t next_stream_ = 0;  // the one that is replaced next
    // What is left of the ranges of prefetch(), and how many pages may be fetched for them.
    std::deque<PartRange> prefetches_;
    std::uint64_t prefetches_left_ = 0;
    // The next page to fill the memory with, and the end.
    std::uint64_t next_of_all_ = 0;
    std::uint64_t end_of_all_ = 0;
};

}  // namespace gpunbd::storage
