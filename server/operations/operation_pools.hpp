// One worker's operations, of which those that have finished are used again.
#pragma once

#include "server/connection/pool.hpp"
#include "server/operations/read_operation.hpp"
#include "server/operations/status_operation.hpp"
#include "server/operations/write_operation.hpp"
#include "server/operations/zero_operation.hpp"

namespace gpunbd::server {

struct OperationPools {
    static constexpr std::size_t max_free = 1024;  // of each kind, about 1 KiB each

    Pool<ReadOperation> reads{max_free};
    Pool<WriteOperation> writes{max_free};
    Pool<ZeroOperation> zeroes{max_free};
    Pool<StatusOperation> statuses{max_free};
};

}  // namespace gpunbd::server
