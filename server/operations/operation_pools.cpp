#include "server/operations/operation_pools.hpp"

namespace gpunbd::server {

void ReadOperation::return_to(OperationPools& pools) { pools.reads.give_back(*this); }
void WriteOperation::return_to(OperationPools& pools) { pools.writes.give_back(*this); }
void ZeroOperation::return_to(OperationPools& pools) { pools.zeroes.give_back(*this); }
void StatusOperation::return_to(OperationPools& pools) { pools.statuses.give_back(*this); }

}  // namespace gpunbd::server
