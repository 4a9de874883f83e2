#include "server/base/machine_shutdown.hpp"

#include "storage/base/program_output.hpp"

namespace gpunbd::server {

bool machine_is_shutting_down() {
    // Not is-system-running, which reports "starting" until the boot has finished.
    const auto jobs =
        storage::output_of({"systemctl", "list-jobs", "--no-legend", "shutdown.target"});
    return jobs && jobs->find("shutdown.target start ") != std::string::npos;
}

}  // namespace gpunbd::server
