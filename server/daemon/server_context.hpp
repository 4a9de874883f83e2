// The state that the services of a server share. Members are destroyed in reverse order, after all
// services.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>

#include "config/serve_command.hpp"
#include "server/base/expected.hpp"
#include "server/daemon/lifecycle.hpp"
#include "server/daemon/supervision.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/export_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/handover/retained_calibration.hpp"
#include "server/handover/retained_contents.hpp"
#include "server/handover/retained_exports.hpp"
#include "server/handover/retained_mappings.hpp"
#include "server/logging/progress_log.hpp"
#include "server/net/connection_slots.hpp"

namespace gpunbd::server {

// The state that the supervisor stores. All unset without a descriptor store.
struct RetainedState {
    explicit RetainedState(Supervision& supervision);

    // Lets the next server create this export, if anything is retained.
    Expected<void> keep(const config::ExportOptions& options) const;
    // Frees the kept contents of a removed export with this name. Call it before the options of a
    // clone or of a restored export are stored: the next server must not take over the old
    // contents.
    void drop_earlier(const std::string& name) const;

    std::optional<RetainedCalibration> calibration;
    std::unique_ptr<RetainedContents> contents;  // after an upgrade: set by Takeover
    std::unique_ptr<RetainedMappings> mappings;
    std::unique_ptr<RetainedExports> exports;
};

struct ServerContext {
    ServerContext(const config::ServeCommand& its_command, config::Options its_options,
                  Supervision::Passed passed = Supervision::Passed::from_environment());

    Supervision supervision;
    const config::ServeCommand command;
    config::Options options;   // in effect; ExportService changes those that can change
    const bool protects_swap;  // memory is locked before the first client
    // Once the first exports are being made, only the thread that makes exports opens devices.
    DeviceRegistry devices;
    // Volumes are destroyed here. Everything that can own a volume is declared below, or is a
    // service, and is therefore destroyed first; devices and the descriptor store, which a volume
    // needs until its end, are declared above.
    VolumeDisposal disposal;
    RetainedState retained;
    ExportRegistry exports;
    ConnectionSlots slots;  // outlives the connections
    boost::asio::io_context io{1};
    ProgressLog progress{io};
    Lifecycle lifecycle;
};

}  // namespace gpunbd::server
