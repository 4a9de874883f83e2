// The doctor's checks, by topic. They change nothing.
#pragma once

#include "server/tools/doctor/diagnosis.hpp"
#include "server/tools/doctor/machine.hpp"
#include "storage/devices/device.hpp"

namespace gpunbd::server {

// The kernel's NBD client on this machine.
Diagnoses check_kernel_client(const Machine& machine);
// A server whose machine uses its exports as swap; see server/manual/swap.md.
Diagnoses check_swap(const Machine& machine);
// Clients on other machines.
Diagnoses check_remote(const Machine& machine);
Diagnoses check_gpus(const Machine& machine);
// The CPU's access to the memory of an open GPU.
Diagnosis check_mapping(const storage::DeviceInfo& gpu);
// Contents that outlive the server.
Diagnoses check_keep(const Machine& machine);

}  // namespace gpunbd::server
