#include "server/drivers/config_drivers.hpp"

#include <vector>

#include "config/devices/device_drivers.hpp"
#include "storage/devices/device_driver.hpp"
#include "storage/devices/drivers/device_drivers.hpp"

namespace gpunbd::server {

void register_device_drivers() {
    std::vector<config::DriverInfo> infos;
    for (const storage::DeviceDriver* driver : storage::device_drivers()) {
        config::DriverInfo& info = infos.emplace_back(driver->info());
        info.scheme = driver->scheme();
        info.gpu = driver->drives_gpus();
    }
    config::set_device_drivers(std::move(infos));
}

}  // namespace gpunbd::server
