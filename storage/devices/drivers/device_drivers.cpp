#include "storage/devices/drivers/device_drivers.hpp"

#include <array>
#include <utility>
#include <vector>

#include "config/devices/device_drivers.hpp"
#include "storage/devices/cuda/cuda_driver.hpp"
#include "storage/devices/file/file_driver.hpp"
#include "storage/devices/host/host_device.hpp"
#include "storage/devices/pci/pci_driver.hpp"
#include "storage/devices/vulkan/vulkan_driver.hpp"

namespace gpunbd::storage {

std::span<const DeviceDriver* const> device_drivers() {
    static const std::array drivers{&host_driver(), &cuda::cuda_driver(), &vulkan::vulkan_driver(),
                                    &pci_driver(), &file_driver()};
    return drivers;
}

void register_device_drivers() {
    std::vector<config::DriverInfo> infos;
    for (const DeviceDriver* driver : device_drivers()) {
        config::DriverInfo& info = infos.emplace_back(driver->info());
        info.scheme = driver->scheme();
        info.gpu = driver->drives_gpus();
    }
    config::set_device_drivers(std::move(infos));
}

}  // namespace gpunbd::storage
