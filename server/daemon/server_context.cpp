#include "server/daemon/server_context.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "config/client_clones.hpp"
#include "config/exports_by_name.hpp"
#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

// Offers the exports that were created at run time again. An export of the configuration with the
// same name takes precedence.
void add_run_time_exports(KeptExports& kept, config::Options& options) {
    std::vector<config::ExportOptions> earlier = kept.take_earlier();
    const config::ExportsByName configured(options.exports);
    for (config::ExportOptions& each : earlier) {
        if (configured.find(each.name) == nullptr) {
            options.exports.push_back(std::move(each));
            continue;
        }
        spdlog::warn(
            "export {} was created at run time, but the configuration has an export of this name "
            "now, which is used instead",
            config::in_quotes(each.name));
        kept.drop(each.name);
    }
}

// The template may have changed while no server ran.
void update_clones(config::ExportList& exports) {
    config::ExportsByName templates;
    for (const config::ExportOptions& each : exports) {
        if (each.is_template()) templates.add(each);
    }
    for (auto each = exports.begin(); each != exports.end(); ++each) {
        if (!each->provenance.made_by.empty()) {
            exports.edit(each) = config::updated_clone(*each, templates);
        }
    }
}

// Clones are made from exports above them, also those for clients. Exports that were created at run
// time are in any order.
void put_sources_first(config::ExportList& exports) {
    const config::ExportsByName by_name(exports);
    const auto source_of = [&](const config::ExportOptions& each) {
        const std::string& source = each.is_template() ? each.clone_per_client.of : each.clone_of;
        return source.empty() ? nullptr : by_name.find(source);
    };
    std::vector<const config::ExportOptions*> order;
    order.reserve(exports.size());
    std::unordered_set<const config::ExportOptions*> placed;
    for (const config::ExportOptions& each : exports) {
        // Ends at a source that has its place, and if exports are clones of each other.
        const std::size_t first = order.size();
        for (const auto* next = &each; next != nullptr && placed.insert(next).second;
             next = source_of(*next)) {
            order.push_back(next);
        }
        std::reverse(order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
    }
    config::ExportList sorted;
    sorted.reserve(exports.size());
    for (const auto* each : order) sorted.push_back(*each);
    exports = std::move(sorted);
}

}  // namespace

KeptState::KeptState(Supervision& supervision) {
    if (!supervision.store) return;
    DescriptorStore& store = *supervision.store;
    calibration.emplace(store, supervision.descriptors);
    mappings = std::make_unique<KeptMappings>(store, supervision.descriptors);
    if (supervision.predecessor) {
        for (auto& each : supervision.predecessor->take_run_time_exports()) {
            store.add_kept(each.name);
            supervision.descriptors.add(each.name, std::move(each.descriptor));
        }
    }
    exports = std::make_unique<KeptExports>(store, supervision.descriptors);
    if (!supervision.predecessor) {
        contents = std::make_unique<KeptContents>(store, supervision.descriptors);
    }
}

Expected<void> KeptState::keep(const config::ExportOptions& options) const {
    return exports ? exports->keep(options) : Expected<void>();
}

void KeptState::drop_earlier(const std::string& name) const {
    if (contents) contents->drop(name);
}

ServerContext::ServerContext(const config::ServeCommand& its_command, config::Options its_options,
                             Supervision::Passed passed)
    : supervision(std::move(passed)),
      command(its_command),
      options(std::move(its_options)),
      protects_swap(options.any_swap()),
      devices(options.devices, true),
      kept(supervision),
      slots(options.limits) {
    if (kept.exports) add_run_time_exports(*kept.exports, options);
    if (kept.contents) kept.contents->finish_renames(options.exports);
    update_clones(options.exports);
    put_sources_first(options.exports);
    if (!kept.calibration) return;
    devices.set_calibration_states(supervision.predecessor
                                       ? supervision.predecessor->take_calibrations()
                                       : kept.calibration->states());
}

}  // namespace gpunbd::server
