// Whether the requests of administrators are possible, and what they change in the options.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/options.hpp"
#include "server/admin/model/admin_backend.hpp"
#include "server/base/expected.hpp"
#include "server/daemon/server_context.hpp"
#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

inline constexpr const char* is_gone = "the export does not exist any more";

// The reason of a request for an unknown export.
std::string unknown(const std::string& name);

inline auto find_export(const config::Options& options, const std::string& name) {
    return std::ranges::find(options.exports, name, &config::ExportOptions::name);
}

// The options of the export that is created. `has_state`: it can be stored in the state folder.
Expected<config::ExportOptions, NotDone> wanted_export(const ServerContext& context,
                                                       const CreateExport& request, bool has_state);
// After a success the options have this export.
Expected<void> add_export(config::Options& options, const config::ExportOptions& wanted);

// What is removed. It must not hold a reference to the export: each reference keeps its memory, and
// the log counts it as a client.
struct Removal {
    config::ExportOptions options;
    std::shared_ptr<ExportUse> use;
    bool contents_remain;
    ExportUse::Closed closed = {};
};

Expected<Removal, NotDone> removal_of(const ServerContext& context, const RemoveExport& request);
// After a success the options do not have the export any more, and it is closed.
Expected<void> take_out(config::Options& options, const ExportRegistry& exports,
                        const RemoveExport& request, Removal& removal);

struct Resizing {
    config::ExportOptions stored;  // for the next server
    // The size with which the next server looks for kept contents, unless the new one is stored.
    std::uint64_t configured = 0;
};

Expected<Resizing> set_size(config::Options& options, const ExportRegistry& exports,
                            const Export& served, const ResizeExport& request);

// The reason why there is no such renaming.
std::optional<NotDone> refusal_of_renaming(const ServerContext& context,
                                           const RenameExport& request);
// As they are stored for the next server.
struct Renamed {
    config::ExportOptions from;
    config::ExportOptions to;
};
Expected<Renamed> set_name(config::Options& options, const ExportRegistry& exports,
                           const Export& served, const RenameExport& request);

}  // namespace gpunbd::server
