// The exports that are offered now: a snapshot that is exchanged as a whole when the configuration
// is loaded again, and that any thread may read.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "server/exports/export.hpp"

namespace gpunbd::server {

class ExportRegistry {
 public:
    // In the order in which they are listed; the first is also the default ("" asks for it).
    using Exports = std::vector<std::shared_ptr<const Export>>;

    void replace(Exports exports);
    std::shared_ptr<const Exports> snapshot() const;
    std::shared_ptr<const Export> open(std::string_view name) const;

 private:
    mutable std::mutex mutex_;
    std::shared_ptr<const Exports> exports_ = std::make_shared<const Exports>();
};

}  // namespace gpunbd::server
