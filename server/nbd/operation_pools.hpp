// One worker's operations; those that have ended are reused.
#pragma once

#include "server/nbd/read_operation.hpp"
#include "server/nbd/write_operation.hpp"
#include "server/net/transport/pool.hpp"

namespace gpunbd::server {

struct OperationPools {
    static constexpr std::size_t max_free = 1024;  // of each kind, about 1 KiB each

    Pool<ReadOperation> reads{max_free};
    Pool<WriteOperation> writes{max_free};
    Pool<ZeroOperation> zeroes{max_free};
    Pool<FlushOperation> flushes{max_free};
    Pool<StatusOperation> statuses{max_free};
};

}  // namespace gpunbd::server
