// The doctor's checks, by topic. They change nothing.
#pragma once

#include "config/options.hpp"
#include "storage/diagnosis/machine.hpp"

namespace gpunbd::server {

using namespace storage::diagnosis;

// The kernel's NBD client on this machine.
Diagnoses check_kernel_client(const Machine& machine);
// A server whose machine uses its exports as swap; see server/manual/swap.md.
Diagnoses check_swap(const Machine& machine);
// Clients on other machines.
Diagnoses check_remote(const Machine& machine);
// The devices of every driver.
Diagnoses check_device_drivers(const Machine& machine);
// Contents that outlive the server.
Diagnoses check_keep(const Machine& machine);
// The exports of a configuration that have an origin.
Diagnoses check_origins(const Machine& machine, const config::Options& options);
// Block devices that a server makes.
Diagnoses check_ublk(const Machine& machine);

}  // namespace gpunbd::server
