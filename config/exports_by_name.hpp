// An index of exports by their names. Changes of exports look up each of them, so a search from the
// first one would take quadratic time.
#pragma once

#include <string_view>
#include <unordered_map>

#include "config/options.hpp"

namespace gpunbd::config {

// INVARIANT: the exports neither move nor get another name while they are indexed.
class ExportsByName {
 public:
    ExportsByName() = default;
    explicit ExportsByName(const ExportList& exports) {
        reserve(exports.size());
        for (const ExportOptions& each : exports) add(each);
    }
    void reserve(std::size_t exports) { by_name_.reserve(exports); }
    // Of exports with the same name, the first one is found.
    void add(const ExportOptions& exported) { by_name_.emplace(exported.name, &exported); }
    // Null: there is none.
    const ExportOptions* find(std::string_view name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : found->second;
    }

 private:
    std::unordered_map<std::string_view, const ExportOptions*> by_name_;
};

}  // namespace gpunbd::config
