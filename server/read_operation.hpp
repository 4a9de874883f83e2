// READ: pieces of the volume go out as they become readable.
#pragma once

#include "server/operation.hpp"
#include "server/outbox.hpp"
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
    void send(const storage::ReadTransfer::Piece& piece);
    void put_header(Outbox::Item& item, const storage::ReadTransfer::Piece& piece);
    void settle_line();
    void fail();
    void finish_if_over();

    storage::ReadTransfer transfer_;
    bool structured_ = false;
    // A simple reply, or a read that must not be fragmented: one header, and then all of the data.
    bool in_one_ = false;
    bool in_line_ = false;      // the session counts it among its unanswered READs
    bool begun_ = false;        // the transfer has
    bool header_sent_ = false;  // the first header is in the outbox
    bool answered_ = false;     // the last chunk, or the error, is in the outbox
    std::uint32_t lent_ = 0;    // pieces in the outbox
};

}  // namespace gpunbd::server
