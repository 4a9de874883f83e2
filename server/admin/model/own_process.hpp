// What the operating system reports about this process.
#pragma once

#include "server/admin/model/status.hpp"

namespace gpunbd::server {

// Leaves out `started`, `uptime`, `workers` and `state`, which only the server knows.
ProcessStatus describe_own_process();

}  // namespace gpunbd::server
