#pragma once

#include "protocol/gate.hpp"
#include "storage/transfers/write_transfer.hpp"

namespace gpunbd::server {

// Of a TRIM or WRITE_ZEROES.
inline storage::ZeroTransfer::Options zero_options(const protocol::Command& command) {
    return {.keep_pages = command.no_hole,
            .is_trim = command.type == protocol::CommandType::trim,
            .is_durable = command.fua};
}

}  // namespace gpunbd::server
