// TRIM and WRITE_ZEROES.
#pragma once

#include "server/operation.hpp"
#include "storage/zero_transfer.hpp"

namespace gpunbd::server {

class ZeroOperation final : public Operation {
 public:
    void start(Session& session, const protocol::Command& command);

    void transfer_moved(storage::Transfer& transfer) override;
    void abandon() override;

 private:
    void answer_if_done();

    storage::ZeroTransfer transfer_;
};

}  // namespace gpunbd::server
