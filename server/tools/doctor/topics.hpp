// What the doctor looks at, by topic. Each looks, and changes nothing.
#pragma once

#include "server/tools/doctor/diagnosis.hpp"
#include "server/tools/doctor/machine.hpp"
#include "storage/devices/device.hpp"

namespace gpunbd::server {

// The kernel's client, on this machine.
Diagnoses check_kernel_client(const Machine& machine);
// A server whose own machine swaps to it. server/manual/swap.md.
Diagnoses check_swap(const Machine& machine);
// Clients on other machines.
Diagnoses check_remote(const Machine& machine);
Diagnoses check_gpus(const Machine& machine);
// How the CPU reaches the memory of a GPU that was opened.
Diagnosis check_mapping(const storage::DeviceInfo& gpu);
// Contents that outlive the server.
Diagnoses check_keep(const Machine& machine);

}  // namespace gpunbd::server
