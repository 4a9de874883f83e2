#include "server/process/finish_taking_over.hpp"

#include <spdlog/spdlog.h>

#include <exception>

namespace gpunbd::server {

namespace {

using Workers = std::vector<std::unique_ptr<Worker>>;
using Volumes = std::vector<std::shared_ptr<storage::Volume>>;

void open_channels(storage::Channels& channels, const Volumes& volumes) {
    for (const auto& volume : volumes) {
        for (storage::Device* device : volume->devices()) channels.open(*device);
    }
}

void finish_behind(const Workers& workers, std::size_t next, const Volumes& volumes) {
    if (next == workers.size()) {
        for (const auto& volume : volumes) volume->finish_taking_over();
        return;
    }
    workers[next]->post([&workers, next, volumes](WorkerContext& its) {
        try {
            open_channels(its.channels, volumes);
            finish_behind(workers, next + 1, volumes);
        } catch (const std::exception& error) {
            spdlog::warn("memory that was taken over stays without addresses for the CPU: {}",
                         error.what());
        }
    });
}

}  // namespace

void finish_taking_over(const Workers& workers, const ExportRegistry::Exports& exports) {
    Volumes unfinished;
    for (const auto& each : exports) {
        if (!each->volume->is_taken_over()) unfinished.push_back(each->volume);
    }
    if (!unfinished.empty()) finish_behind(workers, 0, unfinished);
}

}  // namespace gpunbd::server
