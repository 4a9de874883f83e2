// TRIM and WRITE_ZEROES.
#pragma once

#include "server/nbd/operation.hpp"
#include "storage/transfers/zero_transfer.hpp"

namespace gpunbd::server {

class ZeroOperation : public Operation {
 public:
    void abandon() override;

 private:
    void begin() override;
    void moved() override;
    void give_back_to(OperationPools& pools) override;
    void answer_if_done();

    storage::ZeroTransfer transfer_;
};

}  // namespace gpunbd::server
