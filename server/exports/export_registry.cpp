#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

void ExportRegistry::replace(Exports exports) {
    auto next = std::make_shared<const Exports>(std::move(exports));
    for (const auto& each : *next) each->use->apply(each->options);
    const std::lock_guard lock(mutex_);
    exports_.swap(next);
}

std::shared_ptr<const ExportRegistry::Exports> ExportRegistry::snapshot() const {
    const std::lock_guard lock(mutex_);
    return exports_;
}

std::shared_ptr<const Export> ExportRegistry::open(std::string_view name) const {
    const auto exports = snapshot();
    for (const auto& candidate : *exports) {
        if (candidate->info.name == name) return candidate;
    }
    return name.empty() && !exports->empty() ? exports->front() : nullptr;
}

}  // namespace gpunbd::server
