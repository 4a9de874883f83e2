#include "storage/devices/drivers/device_drivers.hpp"

#include <array>

#include "storage/devices/cuda/cuda_driver.hpp"
#include "storage/devices/host/host_driver.hpp"
#include "storage/devices/pci/pci_driver.hpp"

namespace gpunbd::storage {

std::span<const DeviceDriver* const> device_drivers() {
    static const std::array drivers{&host_driver(), &cuda::cuda_driver(), &pci_driver()};
    return drivers;
}

}  // namespace gpunbd::storage
