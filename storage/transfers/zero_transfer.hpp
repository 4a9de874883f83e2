// TRIM and WRITE_ZEROES: whole pages go by the page table and cost no traffic; what remains at the
// edges is zeroed by the device itself.
#pragma once

#include "storage/transfers/transfer.hpp"

namespace gpunbd::storage {

class ZeroTransfer final : public Transfer, private Deferred {
 public:
    // `keep_pages` (NO_HOLE): every page of the range is mapped afterwards.
    void begin(const TransferContext& context, TransferOwner& owner, Range range, bool keep_pages);
    // What has not begun never will. done() tells when what is in flight has ended.
    void abandon();
    // status() is final.
    bool done() const {
        return position_ == end_ && returned_ == issued_ && !deferred_ && !asking();
    }

 private:
    // To unmap a page may give memory back to the system: so many of them are a step, and the rest
    // of the range waits for the next poll.
    static constexpr std::uint32_t pages_per_step = 8;

    void advance() override;
    void chunk_moved(Chunk& chunk) override;
    void resume() override;
    void go_on_later();

    bool keep_pages_ = false;
    bool deferred_ = false;
};

}  // namespace gpunbd::storage
