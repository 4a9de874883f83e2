// TRIM and WRITE_ZEROES. Whole pages are unmapped without any copying. The device zeroes the
// partial pages at both ends.
#pragma once

#include "storage/transfers/transfer.hpp"

namespace gpunbd::storage {

class ZeroTransfer final : public Transfer, private DeferredWork {
 public:
    // `keep_pages` (NO_HOLE): every page of the range is mapped afterwards.
    void begin(const TransferContext& context, TransferOwner& owner, Range range, bool keep_pages);
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

    bool keep_pages_ = false;
    bool deferred_ = false;
};

}  // namespace gpunbd::storage
