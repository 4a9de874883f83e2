// Workers and their pinned memory live on the NUMA node of the device they serve.
#pragma once

#include <vector>

namespace gpunbd::server {

// Keeps the calling thread, and with it the memory it touches first, on that node. Does nothing
// where the node is unknown (-1) or the system does not say which cores it has.
void stay_on_node(int node);

}  // namespace gpunbd::server
