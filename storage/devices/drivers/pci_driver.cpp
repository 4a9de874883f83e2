#include "storage/devices/drivers/pci_driver.hpp"

#include "storage/devices/pci/bar_device.hpp"

namespace gpunbd::storage {

namespace {

class PciDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "pci"; }
    bool drives_gpus() const override { return false; }
    std::vector<std::string> enumerate(std::string&) const override { return {}; }
    std::vector<DeviceInfo> only_by_name() const override { return list_bars(); }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        return open_bar_device(
            number, BarPlace(id),
            {.reserve = options.reserve, .capacity = options.capacity, .force = options.force});
    }
};

}  // namespace

const DeviceDriver& pci_driver() {
    static const PciDriver driver;
    return driver;
}

}  // namespace gpunbd::storage
