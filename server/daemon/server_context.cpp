#include "server/daemon/server_context.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "config/client_clones.hpp"
#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

// Offers the exports that were created at run time again. An export of the configuration with the
// same name takes precedence.
void add_run_time_exports(RetainedExports& retained, config::Options& options) {
    for (config::ExportOptions& each : retained.take_inherited()) {
        if (std::ranges::find(options.exports, each.name, &config::ExportOptions::name) ==
            options.exports.end()) {
            options.exports.push_back(std::move(each));
            continue;
        }
        spdlog::warn(
            "export {} was created at run time, but the configuration has an export of this name "
            "now, which is used instead",
            config::in_quotes(each.name));
        retained.forget(each.name);
    }
}

// The template may have changed while no server ran.
void update_clones(std::vector<config::ExportOptions>& exports) {
    for (config::ExportOptions& each : exports) each = config::updated_clone(each, exports);
}

// Clones are made from exports above them. Those that were created at run time are in any order.
void put_sources_first(std::vector<config::ExportOptions>& exports) {
    std::vector<config::ExportOptions> sorted;
    sorted.reserve(exports.size());
    const auto waits = [&](const config::ExportOptions& each) {
        return !each.clone_of.empty() &&
               std::ranges::find(exports, each.clone_of, &config::ExportOptions::name) !=
                   exports.end();
    };
    while (!exports.empty()) {
        auto next = std::ranges::find_if_not(exports, waits);
        if (next == exports.end()) next = exports.begin();  // clones of each other
        sorted.push_back(std::move(*next));
        exports.erase(next);
    }
    exports = std::move(sorted);
}

}  // namespace

RetainedState::RetainedState(Supervision& supervision) {
    if (!supervision.store) return;
    DescriptorStore& store = *supervision.store;
    calibration.emplace(store, supervision.inherited);
    mappings = std::make_unique<RetainedMappings>(store, supervision.inherited);
    if (supervision.predecessor) {
        for (auto& each : supervision.predecessor->take_run_time_exports()) {
            store.add_stored(each.name);
            supervision.inherited.add(each.name, std::move(each.descriptor));
        }
    }
    exports = std::make_unique<RetainedExports>(store, supervision.inherited);
    if (!supervision.predecessor) {
        contents = std::make_unique<RetainedContents>(store, supervision.inherited);
    }
}

std::string RetainedState::keep(const config::ExportOptions& options) const {
    return exports ? exports->keep(options) : std::string();
}

void RetainedState::drop_earlier(const std::string& name) const {
    if (contents) contents->drop(name);
}

ServerContext::ServerContext(const config::ServeCommand& its_command, config::Options its_options)
    : command(its_command),
      options(std::move(its_options)),
      protects_swap(options.any_swap()),
      devices(options.devices, true),
      retained(supervision),
      slots(options.limits) {
    if (retained.exports) add_run_time_exports(*retained.exports, options);
    update_clones(options.exports);
    put_sources_first(options.exports);
    if (!retained.calibration) return;
    devices.set_calibration_states(supervision.predecessor
                                       ? supervision.predecessor->take_calibrations()
                                       : retained.calibration->states());
}

}  // namespace gpunbd::server
