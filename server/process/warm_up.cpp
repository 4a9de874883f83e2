#include "server/process/warm_up.hpp"

#include "server/protection/heap.hpp"

namespace gpunbd::server {

std::vector<std::future<void>> warm_up(const std::vector<std::unique_ptr<Worker>>& workers,
                                       const ExportRegistry::Exports& exports) {
    std::vector<std::shared_ptr<storage::Volume>> volumes;
    for (const auto& each : exports) {
        if (!each->options.swap) continue;
        each->volume->start_provisioners();
        volumes.push_back(each->volume);
    }
    std::vector<std::future<void>> warm;
    for (const auto& worker : workers) {
        const auto task = std::make_shared<std::packaged_task<void(WorkerContext&)>>(
            [volumes](WorkerContext& its) {
                grow_heap();
                for (const auto& volume : volumes) {
                    for (storage::Device* device : volume->devices()) its.channels.open(*device);
                }
            });
        warm.push_back(task->get_future());
        worker->post([task](WorkerContext& its) { (*task)(its); });
    }
    return warm;
}

}  // namespace gpunbd::server
