// Tests of the control plane in one process. tests/README.md has the variables of the environment.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "storage/devices/drivers/device_drivers.hpp"
#include "tests/test.hpp"

int main(int argc, char** argv) {
    ::signal(SIGPIPE, SIG_IGN);
    spdlog::set_level(std::getenv("MODEL_LOG") != nullptr ? spdlog::level::debug
                                                          : spdlog::level::off);
    // Most staging memory is never used.
    ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    // Threads that wait look again every 20 us, not every 70.
    ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    // Each server would look for GPUs, which takes longer than a whole sequence.
    ::setenv("VK_DRIVER_FILES", "/dev/null", 1);
    ::setenv("VK_ICD_FILENAMES", "/dev/null", 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    gpunbd::storage::register_device_drivers();
    return doctest::Context(argc, argv).run();
}
