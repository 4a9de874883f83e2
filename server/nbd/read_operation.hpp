#pragma once

#include <cstddef>
#include <vector>

#include "server/nbd/operation.hpp"
#include "storage/transfers/read_transfer.hpp"

namespace gpunbd::server {

// BLOCK_STATUS: reports the page table as extents, for each context that the request names.
class StatusOperation : public Operation {
 public:
    // A reply may end before the range does ("NBD_CMD_BLOCK_STATUS"). So each context of a request
    // takes no longer than a turn of its connection: it looks at no more pages than 64 GiB have at
    // the default page size, and finds no more runs of equal pages.
    static constexpr std::uint64_t max_pages = 32 * 1024;
    static constexpr std::uint64_t max_runs = 2048;

    // The most pages and runs of each context.
    static std::uint64_t pages_read(const protocol::Command& command, std::uint64_t page_size);
    static std::uint64_t runs_found(const protocol::Command& command, std::uint64_t page_size);
    // The most bytes that its answer takes.
    static std::uint64_t max_memory(const protocol::Command& command, std::uint64_t page_size);

    void sent() override;
    void abandon() override;

 private:
    void begin() override;
    void moved() override {}
    void give_back_to(OperationPools& pools) override;
    void find_extents(protocol::MetaContext context, std::vector<protocol::Extent>& extents) const;

    std::vector<std::byte> reply_;
};

// READ: sends pieces of the volume as they become readable.
class ReadOperation : public Operation {
 public:
    void sent() override;
    void abandon() override;

 private:
    void begin() override;
    void moved() override;
    void give_back_to(OperationPools& pools) override;
    void resume() override;
    void advance_fetch();
    void enter(Form form);
    void advance();
    void queue_ready();
    void add_chunk(const storage::ReadTransfer::Piece& piece, bool last);
    void add_part_of_whole(const storage::ReadTransfer::Piece& piece);
    void memory_complete();
    void leave_sequence() {
        if (context_->send_queue().leave(*this)) context_->wakeup().resume();
    }
    bool has_replied() const { return state() == RequestState::replying; }
    void fail_transfer();

    storage::ReadTransfer transfer_;
    std::uint32_t in_queue_ = 0;  // pieces
    bool has_fetched_ = false;    // before it entered the sequence of replies
};

}  // namespace gpunbd::server
