#include "server/drivers/config_drivers.hpp"

#include <vector>

#include "config/device_drivers.hpp"
#include "storage/devices/device_driver.hpp"
#include "storage/devices/drivers/device_drivers.hpp"

namespace gpunbd::server {

void register_device_drivers() {
    std::vector<config::DriverInfo> infos;
    for (const storage::DeviceDriver* driver : storage::device_drivers()) {
        const storage::DeviceSyntax syntax = driver->syntax();
        config::DriverInfo& info =
            infos.emplace_back(config::DriverInfo{.scheme = driver->scheme(),
                                                  .gpu = driver->drives_gpus(),
                                                  .form = syntax.form,
                                                  .description = syntax.description,
                                                  .example = syntax.example,
                                                  .correction = syntax.correction,
                                                  .parse = syntax.parse,
                                                  .guess = syntax.guess,
                                                  .device_files = syntax.device_files,
                                                  .completed = syntax.completed});
        for (const auto& [key, purpose] : syntax.settings) info.settings.push_back({key, purpose});
    }
    config::set_device_drivers(std::move(infos));
}

}  // namespace gpunbd::server
