// TRIM and WRITE_ZEROES: whole pages go by the page table and cost no traffic; what remains at the
// edges is zeroed by the device itself.
#pragma once

#include "storage/transfer.hpp"

namespace gpunbd::storage {

class ZeroTransfer final : public Transfer {
 public:
    // `keep_pages` (NO_HOLE): every page of the range is mapped afterwards.
    void begin(Volume& volume, Lanes& lanes, StagingAccount& account, TransferOwner& owner,
               std::uint64_t offset, std::uint32_t length, bool keep_pages);
    // status() is final.
    bool done() const { return position_ == end_ && returned_ == issued_; }

 private:
    void advance() override;
    void chunk_moved(Chunk& chunk) override;

    bool keep_pages_ = false;
};

}  // namespace gpunbd::storage
