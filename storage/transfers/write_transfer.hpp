#pragma once

#include <sys/uio.h>

#include <optional>
#include <span>

#include "storage/transfers/transfer.hpp"

namespace gpunbd::storage {

// TRIM and WRITE_ZEROES. Whole pages are unmapped without any copying. The device zeroes the
// partial pages at both ends. If the volume is a cache, its source does all of it.
class ZeroTransfer final : public Transfer, private DeferredWork {
 public:
    struct Options {
        bool keep_pages = false;  // NO_HOLE: every page of the range is mapped afterwards
        bool is_trim = false;
        bool is_durable = false;  // see SourceRequest
    };
    void begin(const TransferContext& context, TransferOwner& owner, Range range,
               const Options& options);
    // Starts nothing more. Copies in flight continue until done().
    void abandon();
    // If true, status() is final.
    bool done() const {
        return position_ == end_ && returned_ == issued_ && !deferred_ && !page_requested();
    }

 private:
    // Unmapping may give memory back to the system, so one step unmaps this many pages and the next
    // poll continues.
    static constexpr std::uint32_t pages_per_step = 8;

    void advance() override;
    void chunk_done(Chunk& chunk) override;
    void resume() override;
    void defer_remainder();
    void zero_cache();

    Options options_;
    bool deferred_ = false;
    ZeroRequest zero_;
};

// FLUSH of a volume that is a cache.
class FlushTransfer final : public Transfer {
 public:
    void begin(const TransferContext& context, TransferOwner& owner);
    void abandon() {}  // it needs nothing from its client
    // If true, status() is final.
    bool done() const { return !page_requested(); }

 private:
    void advance() override;
    void chunk_done(Chunk& chunk) override;

    SourceRequest flush_;
};

// A write. It lends memory for the payload in order. If the CPU can store into the page, it lends
// the page itself. Otherwise it lends staging memory, and the device copies one chunk while the
// next is received.
//
// A write of a whole page that is shared with another volume, or that is only in the source of the
// volume, fills a new page, which replaces that one when it is complete.
//
// If the volume is a cache, it gets to know each page that the write changes. Parts that are not in
// memory are not read from the source if the write changes all of them.
class WriteTransfer final : public Transfer, private DeferredWork {
 public:
    // May lend memory at once, without calling the owner. `is_durable`: see SourceRequest.
    void begin(const TransferContext& context, TransferOwner& owner, Range range,
               bool is_durable = false);

    // Where to store the next payload bytes: returns the number of entries in `out`. 0: nothing can
    // be lent now, and the owner is called when that changes; or everything is filled; or status()
    // is an error, and the owner has to discard the remaining payload and call abandon().
    std::size_t lend(std::span<iovec> out) const;
    // Reports that the first `bytes` of the lent memory contain payload.
    void filled(std::size_t bytes);
    // Copies payload into the lent memory and returns how many bytes fitted.
    std::size_t fill(std::span<const std::byte> payload);

    // lend() waits until the source of the volume has brought a page.
    bool is_fetching() const;
    bool all_filled() const { return position_ == end_ && filled_ == issued_; }
    // Nothing is in flight or lent, and status() is final. The write may be acknowledged after
    // store_fence().
    bool done() const {
        return position_ == end_ && returned_ == issued_ && !page_requested() && !deferred_ &&
               is_finished_;
    }

    // No more payload arrives, and lent memory is no longer used. Copies in flight continue until
    // done().
    void abandon();
    // Like abandon(), but filled chunks are still written. If the end of a whole page is missing,
    // the write fails.
    void end_here();

 private:
    void advance() override;
    void chunk_done(Chunk& chunk) override;
    void release(Chunk& chunk);
    void release_done();
    void give_back_unfilled();
    // The page at position_, see acquire().
    std::optional<Status> find_page(PageRef& page);
    std::optional<Status> find_page_of_cache(PageRef& page);
    // The cache knows that the page at position_ is being written. False: it has to wait, or
    // status() is an error.
    bool begin_page();
    // Reports to the cache what is in memory, and at the end, that it is all.
    void end_pages();
    // After end_here(), the cache has the rest of the part in which the payload ends. False: later.
    bool fetch_rest();
    // The page of the chunk replaces a shared one, unless the write has failed. False: later.
    bool replace(Chunk& chunk);
    void resume() override;
    // The length of this write in the page of position_. All its chunks in one page take the same
    // path.
    std::uint32_t length_in_page() const;

    std::uint64_t begin_ = 0;         // in the volume, bytes
    std::uint32_t filled_ = 0;        // chunks before this one are filled
    std::uint32_t filled_bytes_ = 0;  // in chunk number filled_
    PageRef replacement_;             // the page at position_, if it replaces another one
    bool deferred_ = false;           // replace() waits
    // For the cache. The pages in this range are being written.
    std::uint64_t cache_begin_ = 0;
    std::uint64_t cache_end_ = 0;
    PageRef filled_page_;           // the page at position_, if the write fills parts of it
    std::uint64_t filled_end_ = 0;  // of what it fills, unless it fails
    bool needs_rest_ = false;       // of the part in which the payload ends, at filled_end_
    bool is_finished_ = true;       // the cache knows that it is all; or there is no cache
    SourceRequest write_;
};

}  // namespace gpunbd::storage
