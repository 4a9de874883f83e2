// Counts the accepted and the refused connections.
#pragma once

#include <array>

#include "server/net/connection_slots.hpp"
#include "storage/base/counter.hpp"

namespace gpunbd::server {

struct AcceptCounters {
    storage::Counter accepted;
    std::array<storage::Counter, connection_limits.size()> refused;  // by ConnectionLimit
};

}  // namespace gpunbd::server
