#include "server/daemon/warm_up.hpp"

#include "server/daemon/open_channels.hpp"
#include "server/protection/heap.hpp"

namespace gpunbd::server {

std::vector<std::future<void>> warm_up(const std::vector<std::unique_ptr<Worker>>& workers,
                                       const ExportRegistry::Exports& exports) {
    std::vector<storage::Device*> devices;
    for (const auto& each : exports) {
        if (!each->options.swap) continue;
        each->volume->start_provisioners();
        for (storage::Device* device : each->volume->devices()) devices.push_back(device);
    }
    return open_channels(workers, devices, grow_heap);
}

}  // namespace gpunbd::server
