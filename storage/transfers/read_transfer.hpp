// A read. Pieces come out in order as they become readable, each at most a page long. Pages from
// which the CPU can send, and which no other volume has, are lent directly. Others are copied into
// staging memory, one chunk while the previous one is sent. A copy is stale if another volume may
// have written to the page meanwhile.
#pragma once

#include "storage/transfers/transfer.hpp"

namespace gpunbd::storage {

class ReadTransfer final : public Transfer {
 public:
    struct Piece {
        const std::byte* data = nullptr;  // null: a hole, `length` zeroes
        std::uint64_t offset = 0;         // in the volume, bytes
        std::uint32_t length = 0;         // bytes
    };

    // Fetches what the source of the volume has of the range, and the memory has not. It calls the
    // owner until is_fetching() is false; an error is in status() then. Otherwise begin() follows,
    // which fetches what has been evicted meanwhile. No memory is lent.
    void fetch_absent(const TransferContext& context, TransferOwner& owner, Range range);
    bool is_fetching() const { return is_fetching_; }
    // May make pieces available at once, without calling the owner.
    void begin(const TransferContext& context, TransferOwner& owner, Range range);

    // Takes the next piece, which is lent until give_back(). Returns false if there is none now, or
    // none at all after an error or after the last piece.
    bool next(Piece& piece);
    // No more memory is needed, unless a copy becomes stale: then what it returns is taken again.
    bool all_issued() const { return position_ == end_; }
    // Whether next() would return a piece, and whether it would return all remaining ones.
    bool ready() const { return taken_ != issued_ && chunk(taken_).state == Chunk::State::ready; }
    bool whole_ready() const;
    // If status() is an error: the offset of the failed piece, which has not been taken.
    std::uint64_t failed_at() const { return failed_at_; }
    // Returns the oldest piece that was taken.
    void give_back();
    bool all_taken() const { return position_ == end_ && taken_ == issued_; }

    // The owner needs no more pieces and no longer uses lent ones. Copies in flight keep their
    // memory until idle().
    void abandon();
    bool idle() const { return returned_ == issued_ && !page_requested(); }

 private:
    void advance() override;
    void chunk_done(Chunk& chunk) override;
    bool repeats_after_failure(const Chunk& chunk) const override;
    // Whether the page at position_ has to be fetched. Otherwise `page` is where the next `length`
    // bytes are; a hole: they are zeroes.
    bool is_absent(std::uint32_t length, PageRef& page) const;
    void fetch_next();
    void release(Chunk& chunk);
    void release_ready();
    void repeat_stale();

    bool is_fetching_ = false;
    std::uint32_t taken_ = 0;  // abandon() takes all chunks, also those that are still moving
};

}  // namespace gpunbd::storage
