// What the system knows of this process.
#pragma once

#include "server/admin/status.hpp"

namespace gpunbd::server {

// All but `started`, `workers` and `state`, which the server knows.
ProcessStatus describe_own_process();

}  // namespace gpunbd::server
