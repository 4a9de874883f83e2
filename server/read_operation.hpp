// READ: pieces of the volume go out as they become readable.
#pragma once

#include "server/operation.hpp"
#include "storage/read_transfer.hpp"

namespace gpunbd::server {

class ReadOperation final : public Operation {
 public:
    void start(Session& session, const protocol::Command& command);

    void transfer_moved(storage::Transfer& transfer) override;
    void sent() override;
    void resume() override;
    void abandon() override;

 private:
    void send_ready();
    void send_data(const storage::ReadTransfer::Piece& piece);
    void send_hole(const storage::ReadTransfer::Piece& piece);
    void send_header_once();
    void fail();
    void finish_if_over();

    storage::ReadTransfer transfer_;
    bool structured_ = false;
    bool header_sent_ = false;     // simple replies: one header for all
    bool answered_ = false;        // the last chunk, or the error, is in the outbox
    std::uint32_t lent_ = 0;       // pieces in the outbox
};

}  // namespace gpunbd::server
