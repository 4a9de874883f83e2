#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "server/base/expected.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/passed_descriptors.hpp"
#include "storage/base/mutex.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// What the keys of an export do not say of an export that was created at run time, as comments at
// the beginning of its YAML text.

// Lines; empty: there is nothing to say.
std::string provenance_comments(const config::Provenance& provenance);
// The provenance in the comments at the beginning of a text, of an export created at run time.
config::Provenance provenance_in(std::string_view text);

// Stores the options of exports that were created at run time with the supervisor, so that the next
// server offers them again. The main thread and the thread that creates exports use it.
class KeptExports {
 public:
    // Takes the options that an earlier server has stored out of `handed_over`. The store outlives
    // this object.
    KeptExports(DescriptorStore& store, PassedDescriptors& handed_over);

    // Those of the earlier server.
    std::vector<config::ExportOptions> take_earlier() { return std::move(earlier_); }
    // Stores or replaces the options.
    Expected<void> keep(const config::ExportOptions& options);
    // The same, in place of those of the export that had another name. The next server has either
    // of them, never both.
    Expected<void> rename(const std::string& from, const config::ExportOptions& options);
    void drop(const std::string& name);

    // For a successor: the stored descriptors with their names.
    struct Copy {
        std::string name;
        OwnedFd descriptor;
    };
    std::vector<Copy> copies() const;

 private:
    Expected<void> replace(const std::string& earlier, const config::ExportOptions& options);

    DescriptorStore& store_;
    std::vector<config::ExportOptions> earlier_;
    struct Stored {
        std::string name;  // of the descriptor
        OwnedFd descriptor;
    };
    mutable Mutex mutex_;
    std::map<std::string, Stored> stored_ GUARDED_BY(mutex_);  // by the name of the export
};

}  // namespace gpunbd::server
