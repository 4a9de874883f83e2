// READ: sends pieces of the volume as they become readable.
#pragma once

#include "server/nbd/operation.hpp"
#include "storage/transfers/read_transfer.hpp"

namespace gpunbd::server {

class ReadOperation : public Operation {
 public:
    void sent() override;
    void abandon() override;

 private:
    void begin() override;
    void moved() override;
    void give_back_to(OperationPools& pools) override;
    void resume() override;
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
};

}  // namespace gpunbd::server
