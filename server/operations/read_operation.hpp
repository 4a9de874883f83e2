// READ: pieces of the volume go out as they become readable.
#pragma once

#include "server/operations/operation.hpp"
#include "storage/transfers/read_transfer.hpp"

namespace gpunbd::server {

class ReadOperation : public Operation, private SequencedReply {
 public:
    void sent() override;
    void abandon() override;
    void return_to(OperationPools& pools) override;

 private:
    enum class Stage : std::uint8_t {
        reading,   // nothing is queued yet
        sending,   // the first header is
        answered,  // the last chunk, or the error, is
    };

    void begin() override;
    void moved() override;
    void resume() override;
    void begin_transfer();
    void send_ready();
    void send(const storage::ReadTransfer::Piece& piece, bool last);
    void add_chunk(const storage::ReadTransfer::Piece& piece, bool last);
    void add_part_of_whole(const storage::ReadTransfer::Piece& piece);
    void has_its_memory();
    void leave_sequence();
    void fail();
    void finish_if_over();

    storage::ReadTransfer transfer_;
    Stage stage_ = Stage::reading;
    std::uint32_t lent_ = 0;  // pieces in the send queue
};

}  // namespace gpunbd::server
