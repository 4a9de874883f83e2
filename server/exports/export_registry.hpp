// The exports that are offered: a snapshot that any thread may read and that a reload replaces as a
// whole.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/exports/clone_requests.hpp"
#include "server/exports/export.hpp"
#include "server/exports/export_template.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

class ExportRegistry {
 public:
    // In listing order. The first one is also the default export ("").
    using Exports = std::vector<std::shared_ptr<const Export>>;

    void replace(Exports exports, ExportTemplates templates = {});
    std::shared_ptr<const Exports> snapshot() const;
    std::shared_ptr<const Export> open(std::string_view name) const;
    using Names = std::vector<std::string>;
    // The names that clients can open, in listing order. They keep no export alive.
    std::shared_ptr<const Names> names() const;
    std::shared_ptr<const ExportTemplates> templates() const;
    // The export with exactly this name, or null.
    std::shared_ptr<const Export> find(std::string_view name) const;
    CloneRequests& clone_requests() { return clone_requests_; }
    const CloneRequests& clone_requests() const { return clone_requests_; }

 private:
    mutable Mutex mutex_;
    std::shared_ptr<const Exports> exports_ GUARDED_BY(mutex_) = std::make_shared<const Exports>();
    std::shared_ptr<const Names> names_ GUARDED_BY(mutex_) = std::make_shared<const Names>();
    std::shared_ptr<const ExportTemplates> templates_ GUARDED_BY(mutex_) =
        std::make_shared<const ExportTemplates>();
    // By name: the index in both.
    std::unordered_map<std::string_view, std::size_t> places_ GUARDED_BY(mutex_);
    CloneRequests clone_requests_;
};

// Finds the exports of a list by their names, each at most once. Names that are asked for in the
// order of the list, which is the rule when one of thousands of exports changes, are found without
// an index. The list must outlive this object, which holds no reference to an export: reports count
// those.
class ExportLookup {
 public:
    explicit ExportLookup(const ExportRegistry::Exports& exports) : exports_(exports) {}
    // Null: there is none.
    const std::shared_ptr<const Export>* find(std::string_view name);

 private:
    const std::shared_ptr<const Export>* find_next(std::string_view name);

    const ExportRegistry::Exports& exports_;
    std::size_t next_ = 0;  // those before it were found, except if skipped_
    bool skipped_ = false;
    std::unordered_map<std::string_view, const std::shared_ptr<const Export>*> index_;
};

}  // namespace gpunbd::server
