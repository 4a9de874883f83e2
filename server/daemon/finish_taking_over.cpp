#include "server/daemon/finish_taking_over.hpp"

#include <spdlog/spdlog.h>

#include <exception>

namespace gpunbd::server {

namespace {

using Workers = std::vector<std::unique_ptr<Worker>>;

struct Unfinished {
    std::vector<std::shared_ptr<storage::Volume>> volumes;
    RetainedMappings* mappings;
    std::shared_ptr<RetainedMappings::Files> left = std::make_shared<RetainedMappings::Files>();
};

void open_channels(storage::Channels& channels, const Unfinished& unfinished) {
    for (const auto& volume : unfinished.volumes) {
        for (storage::Device* device : volume->devices()) channels.open(*device);
    }
}

void finish(const Unfinished& unfinished) {
    const auto address = [volumes = unfinished.volumes] {
        for (const auto& volume : volumes) volume->finish_takeover();
    };
    if (unfinished.mappings == nullptr) return address();
    unfinished.mappings->undo(unfinished.left, address);
}

void finish_after_channels(const Workers& workers, std::size_t next, const Unfinished& unfinished) {
    if (next == workers.size()) return finish(unfinished);
    workers[next]->post([&workers, next, unfinished](WorkerContext& its) {
        try {
            open_channels(its.channels, unfinished);
            finish_after_channels(workers, next + 1, unfinished);
        } catch (const std::exception& error) {
            spdlog::warn("memory that was taken over stays unmapped for the CPU: {}", error.what());
        }
    });
}

}  // namespace

void finish_taking_over(const Workers& workers, const ExportRegistry::Exports& exports,
                        RetainedMappings* mappings) {
    Unfinished unfinished{.volumes = {}, .mappings = mappings};
    for (const auto& each : exports) {
        if (!each->volume->takeover_finished()) unfinished.volumes.push_back(each->volume);
    }
    if (mappings != nullptr) *unfinished.left = mappings->take_left();
    if (unfinished.volumes.empty() && unfinished.left->empty()) return;
    finish_after_channels(workers, 0, unfinished);
}

}  // namespace gpunbd::server
