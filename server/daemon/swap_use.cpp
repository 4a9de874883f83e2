#include "server/daemon/swap_use.hpp"

#include <algorithm>

#include "server/protection/swap_devices.hpp"

namespace gpunbd::server {

namespace {

bool is_of(const SwapDevice& device, const Export& exported) {
    if (!exported.options.swap || exported.use->connections() == 0) return false;
    return device.backend.empty() ? device.bytes == exported.info.size
                                  : device.backend == exported.info.instance;
}

}  // namespace

std::vector<std::string> swapped_to(const ExportRegistry::Exports& exports,
                                    const std::string& root) {
    std::vector<std::string> paths;
    for (const SwapDevice& device : served_swap_devices(root)) {
        const bool ours = std::any_of(exports.begin(), exports.end(),
                                      [&](const auto& each) { return is_of(device, *each); });
        if (ours) paths.push_back(device.path);
    }
    return paths;
}

}  // namespace gpunbd::server
