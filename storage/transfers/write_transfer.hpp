// A write: lends memory for the payload in the order of the volume. Where the CPU may store into
// the page, that memory is the page; elsewhere it is staging memory, and the device copy of one
// chunk runs while the next is being received.
#pragma once

#include <sys/uio.h>

#include <span>

#include "storage/transfers/transfer.hpp"

namespace gpunbd::storage {

class WriteTransfer final : public Transfer {
 public:
    // The owner is not told from here.
    void begin(const TransferContext& context, TransferOwner& owner, Range range);

    // Where the next payload bytes go: the number of pieces described in `out`. 0: nothing can be
    // lent now, and the owner is told when that changes; or all is filled; or status() is not ok,
    // the rest of the payload has to be thrown away, and abandon() is due.
    std::size_t lend(std::span<iovec> out) const;
    // So many bytes of what was lent, from its start, now hold payload.
    void filled(std::size_t bytes);
    // Copies payload into what is lent; returns how much of it had room.
    std::size_t fill(std::span<const std::byte> payload);

    bool all_filled() const { return position_ == end_ && filled_ == issued_; }
    // Nothing is in flight and nothing is lent: status() is final. After store_fence() the
    // write may be acknowledged.
    bool done() const { return position_ == end_ && returned_ == issued_ && !asking(); }

    // No more payload comes, and what is lent is not used any more. done() tells when what is
    // in flight has ended.
    void abandon();
    // The same, but what has been filled is written.
    void end_here();

 private:
    void advance() override;
    void chunk_moved(Chunk& chunk) override;
    void release(Chunk& chunk);
    void release_done();
    void give_back_unfilled();
    // Bytes that all of this write has in the page of position_: its chunks there go one way.
    std::uint32_t length_in_page() const;

    std::uint64_t begin_ = 0;         // in the volume, bytes
    std::uint32_t filled_ = 0;        // chunks before this one are full
    std::uint32_t filled_bytes_ = 0;  // of chunk number filled_
};

}  // namespace gpunbd::storage
