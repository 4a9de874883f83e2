// A read: chunks come out in the order of the volume as they become readable, each at most a page
// long. Pages that the CPU may send from are lent as they are; others are copied into staging
// memory, the next chunk while the last is being sent.
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

    // May have pieces at once; the owner is not told from here.
    void begin(const TransferContext& context, TransferOwner& owner, Range range);

    // Takes the next piece, lent until give_back(); false: there is none now (or ever, if status()
    // says so or everything has been taken).
    bool next(Piece& piece);
    // No more memory is wanted.
    bool all_issued() const { return position_ == end_; }
    // next() would have a piece; all pieces that are left.
    bool ready() const { return taken_ != issued_ && chunk(taken_).state == Chunk::State::ready; }
    bool whole_ready() const;
    // Once status() is an error: the offset of the piece that cannot be had, which is none of those
    // taken.
    std::uint64_t failed_at() const { return failed_at_; }
    // Returns the oldest piece taken.
    void give_back();
    bool all_taken() const { return position_ == end_ && taken_ == issued_; }

    // Nothing more is wanted and nothing lent is used any more. Copies in flight keep what is
    // theirs until they end: idle() tells when.
    void abandon();
    bool idle() const { return returned_ == issued_; }

 private:
    void advance() override;
    void chunk_moved(Chunk& chunk) override;
    void release(Chunk& chunk);
    void release_abandoned();

    std::uint32_t taken_ = 0;
    bool abandoned_ = false;
};

}  // namespace gpunbd::storage
