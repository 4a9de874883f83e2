// Registers the program's device drivers before any test runs.
#include "storage/devices/drivers/device_drivers.hpp"

namespace {

[[maybe_unused]] const bool registered = (gpunbd::storage::register_device_drivers(), true);

}  // namespace
