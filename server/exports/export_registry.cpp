#include "server/exports/export_registry.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

void ExportRegistry::replace(Exports exports, ExportTemplates templates) {
    auto next = std::make_shared<const Exports>(std::move(exports));
    auto names = std::make_shared<Names>();
    names->reserve(next->size() + templates.size());
    for (const auto& each : *next) names->push_back(each->info.name);
    std::unordered_map<std::string_view, std::size_t> places;
    places.reserve(next->size());
    for (const auto& each : templates) {
        if (!each->needs_longer_name()) names->push_back(each->options.name);
    }
    for (std::size_t i = 0; i != next->size(); ++i) places.emplace((*names)[i], i);
    GPUNBD_ASSERT(places.size() == next->size(), "exports have different names");
    // Exports that stay have their options.
    const std::shared_ptr<const Exports> before = snapshot();
    ExportLookup earlier(*before);
    for (const auto& each : *next) {
        const auto* const found = earlier.find(each->info.name);
        if (found == nullptr || *found != each) each->use->apply(each->options);
    }
    std::shared_ptr<const Names> next_names = std::move(names);
    auto next_templates = std::make_shared<const ExportTemplates>(std::move(templates));
    const Lock lock(mutex_);
    exports_.swap(next);
    names_.swap(next_names);
    templates_.swap(next_templates);
    places_.swap(places);
}

std::shared_ptr<const ExportRegistry::Exports> ExportRegistry::snapshot() const {
    const Lock lock(mutex_);
    return exports_;
}

std::shared_ptr<const ExportRegistry::Names> ExportRegistry::names() const {
    const Lock lock(mutex_);
    return names_;
}

std::shared_ptr<const ExportTemplates> ExportRegistry::templates() const {
    const Lock lock(mutex_);
    return templates_;
}

std::shared_ptr<const Export> ExportRegistry::find(std::string_view name) const {
    const Lock lock(mutex_);
    const auto place = places_.find(name);
    GPUNBD_ASSERT(place == places_.end() || place->second < exports_->size(),
                  "the index and the list are replaced together");
    return place == places_.end() ? nullptr : (*exports_)[place->second];
}

std::shared_ptr<const Export> ExportRegistry::open(std::string_view name) const {
    if (auto named = find(name)) return named;
    const auto exports = snapshot();
    return name.empty() && !exports->empty() ? exports->front() : nullptr;
}

const std::shared_ptr<const Export>* ExportLookup::find_next(std::string_view name) {
    const std::size_t end = std::min(next_ + 2, exports_.size());  // one may be gone
    for (std::size_t at = next_; at != end; ++at) {
        if (exports_[at]->info.name != name) continue;
        skipped_ = skipped_ || at != next_;
        next_ = at + 1;
        return &exports_[at];
    }
    return nullptr;
}

const std::shared_ptr<const Export>* ExportLookup::find(std::string_view name) {
    if (const auto* const found = find_next(name)) return found;
    if (next_ == exports_.size() && !skipped_) return nullptr;  // all were found
    if (index_.empty()) {
        index_.reserve(exports_.size());
        for (const auto& each : exports_) index_.emplace(each->info.name, &each);
    }
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : found->second;
}

}  // namespace gpunbd::server
