#include "server/daemon/server_context.hpp"

#include <utility>

namespace gpunbd::server {

RetainedState::RetainedState(Supervision& supervision) {
    if (!supervision.store) return;
    DescriptorStore& store = *supervision.store;
    calibration.emplace(store, supervision.inherited);
    mappings = std::make_unique<RetainedMappings>(store, supervision.inherited);
    if (!supervision.predecessor) {
        contents = std::make_unique<RetainedContents>(store, supervision.inherited);
    }
}

ServerContext::ServerContext(const config::ServeCommand& its_command, config::Options its_options)
    : command(its_command),
      options(std::move(its_options)),
      protects_swap(options.any_swap()),
      devices(options.devices, true),
      retained(supervision),
      slots(options.limits) {
    if (!retained.calibration) return;
    devices.set_calibration_states(supervision.predecessor
                                       ? supervision.predecessor->take_calibrations()
                                       : retained.calibration->states());
}

}  // namespace gpunbd::server
