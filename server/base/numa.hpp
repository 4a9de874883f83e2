// Workers and their pinned memory are on the NUMA node of the device that they serve.
#pragma once

#include <vector>

namespace gpunbd::server {

// Binds the calling thread to the CPUs of the node, and so the memory that it touches first. Does
// nothing if the node is unknown (-1) or the system does not list its CPUs.
void stay_on_node(int node);

}  // namespace gpunbd::server
