#include "storage/devices/drivers/host_driver.hpp"

#include "storage/devices/host/host_device.hpp"

namespace gpunbd::storage {

namespace {

class HostDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "host"; }
    bool drives_gpus() const override { return false; }
    std::vector<std::string> enumerate(std::string&) const override { return {"host"}; }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        if (id != scheme()) return nullptr;
        return open_host_device(number, {.reserve = options.reserve, .capacity = options.capacity});
    }
};

}  // namespace

const DeviceDriver& host_driver() {
    static const HostDriver driver;
    return driver;
}

}  // namespace gpunbd::storage
