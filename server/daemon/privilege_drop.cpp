#include "server/daemon/privilege_drop.hpp"

#include <algorithm>
#include <string>

#include "config/devices/device_drivers.hpp"
#include "server/base/privileges.hpp"

namespace gpunbd::server {

namespace {

bool uses_gpus(const config::ExportList& exports) {
    return std::any_of(exports.begin(), exports.end(), [](const config::ExportOptions& each) {
        return (each.devices.empty() && each.clone_of.empty() && !each.is_template()) ||
               std::any_of(each.devices.begin(), each.devices.end(), config::is_gpu);
    });
}

}  // namespace

void PrivilegeDrop::open() {
    if (uses_gpus(context_.options.exports)) {
        // NVIDIA's driver executes a set-user-ID program that creates missing device nodes.
        std::string reason;
        static_cast<void>(context_.devices.first_gpu(reason));
    }
    give_up_new_privileges();
}

}  // namespace gpunbd::server
