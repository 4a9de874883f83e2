#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

void ExportRegistry::replace(Exports exports, ExportTemplates templates) {
    auto next = std::make_shared<const Exports>(std::move(exports));
    auto names = std::make_shared<Names>();
    for (const auto& each : *next) names->push_back(each->info.name);
    std::unordered_map<std::string_view, std::size_t> places;
    for (const auto& each : templates) {
        if (!each->needs_longer_name()) names->push_back(each->options.name);
    }
    for (std::size_t i = 0; i != next->size(); ++i) places.emplace((*names)[i], i);
    for (const auto& each : *next) {
        each->use->apply(each->options);
        each->use->set_name(each->info.name);
    }
    std::shared_ptr<const Names> next_names = std::move(names);
    auto next_templates = std::make_shared<const ExportTemplates>(std::move(templates));
    const std::lock_guard lock(mutex_);
    exports_.swap(next);
    names_.swap(next_names);
    templates_.swap(next_templates);
    places_.swap(places);
}

std::shared_ptr<const ExportRegistry::Exports> ExportRegistry::snapshot() const {
    const std::lock_guard lock(mutex_);
    return exports_;
}

std::shared_ptr<const ExportRegistry::Names> ExportRegistry::names() const {
    const std::lock_guard lock(mutex_);
    return names_;
}

std::shared_ptr<const ExportTemplates> ExportRegistry::templates() const {
    const std::lock_guard lock(mutex_);
    return templates_;
}

std::shared_ptr<const Export> ExportRegistry::find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(name);
    return place == places_.end() ? nullptr : (*exports_)[place->second];
}

std::shared_ptr<const Export> ExportRegistry::open(std::string_view name) const {
    if (auto named = find(name)) return named;
    const auto exports = snapshot();
    return name.empty() && !exports->empty() ? exports->front() : nullptr;
}

ExportIndex index_of(const ExportRegistry::Exports& exports) {
    ExportIndex index;
    index.reserve(exports.size());
    for (const auto& each : exports) index.emplace(each->info.name, &each);
    return index;
}

}  // namespace gpunbd::server
