// Registers the program's device drivers before any test runs.
#include "server/drivers/config_drivers.hpp"

namespace {

[[maybe_unused]] const bool registered = (gpunbd::server::register_device_drivers(), true);

}  // namespace
