#include "server/protection/swap_devices.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace gpunbd::server {

namespace {

constexpr std::string_view nbd = "nbd";
constexpr std::string_view ublk = "ublkb";
constexpr std::string_view folder_of_devices = "/dev/";
constexpr std::uint64_t sector = 512;  // bytes: the unit of a device's size in sysfs
constexpr int most_layers = 8;         // of stacked block devices

class Finder {
 public:
    explicit Finder(const std::string& root) : blocks_(root + "/sys/class/block/") {}

    // `name`: the name of a block device.
    void visit(std::string_view name, int layer = 0) {
        if (name.starts_with(nbd) || name.starts_with(ublk)) {
            return add(name.substr(0, name.find('p')));
        }
        if (layer == most_layers) return;
        std::error_code none;
        const std::filesystem::directory_iterator below(blocks_ + std::string(name) + "/slaves",
                                                        none);
        if (none) return;
        for (const auto& each : below) visit(each.path().filename().string(), layer + 1);
    }
    std::vector<SwapDevice> take() { return std::move(found_); }

 private:
    void add(std::string_view name) {
        SwapDevice device{.path = std::string(folder_of_devices) + std::string(name)};
        const bool known = std::any_of(found_.begin(), found_.end(), [&](const SwapDevice& each) {
            return each.path == device.path;
        });
        if (known) return;
        const std::string folder = blocks_ + std::string(name);
        std::uint64_t sectors = 0;
        std::ifstream(folder + "/size") >> sectors;
        device.bytes = sectors * sector;
        std::getline(std::ifstream(folder + "/backend"), device.backend);
        found_.push_back(std::move(device));
    }

    const std::string blocks_;
    std::vector<SwapDevice> found_;
};

}  // namespace

std::vector<SwapDevice> served_swap_devices(const std::string& root) {
    Finder finder(root);
    std::ifstream swaps(root + "/proc/swaps");
    for (std::string line; std::getline(swaps, line);) {
        const std::string_view path = std::string_view(line).substr(0, line.find_first_of(" \t"));
        if (!path.starts_with(folder_of_devices)) continue;  // the heading, or a swap file
        finder.visit(path.substr(path.rfind('/') + 1));
    }
    return finder.take();
}

}  // namespace gpunbd::server
