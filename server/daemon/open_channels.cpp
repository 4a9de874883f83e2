#include "server/daemon/open_channels.hpp"

namespace gpunbd::server {

std::vector<std::future<void>> open_channels(const std::vector<std::unique_ptr<Worker>>& workers,
                                             const std::vector<storage::Device*>& devices,
                                             void (*first)()) {
    std::vector<std::future<void>> opened;
    for (const auto& worker : workers) {
        const auto task = std::make_shared<std::packaged_task<void(WorkerContext&)>>(
            [devices, first](WorkerContext& its) {
                first();
                for (storage::Device* device : devices) its.channels.open(*device);
            });
        opened.push_back(task->get_future());
        worker->post([task](WorkerContext& its) { (*task)(its); });
    }
    return opened;
}

}  // namespace gpunbd::server
