#include "storage/devices/host/host_driver.hpp"

#include <algorithm>
#include <array>

#include "storage/devices/host/host_device.hpp"

namespace gpunbd::storage {

namespace {

std::optional<std::string> parse(std::string_view text) {
    return text == "host" ? std::optional<std::string>(text) : std::nullopt;
}

std::string guess(std::string_view text) {
    constexpr std::array<std::string_view, 5> others{"cpu", "ram", "memory", "mem", "localhost"};
    return text == "host" || std::ranges::find(others, text) != others.end() ? "host" : "";
}

class HostDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "host"; }
    bool drives_gpus() const override { return false; }
    config::DriverInfo info() const override {
        return {.form = "host",
                .description = "host",
                .example = "host",
                .parse = parse,
                .guess = guess};
    }
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
