#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "config/options.hpp"
#include "config/serve_command.hpp"
#include "server/admin/model/admin_backend.hpp"
#include "server/base/expected.hpp"
#include "server/daemon/supervision.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/export_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/exports/volume_plan.hpp"
#include "server/handover/kept_contents.hpp"
#include "server/handover/kept_device_state.hpp"
#include "server/handover/kept_exports.hpp"
#include "server/logging/log.hpp"
#include "server/net/connection_slots.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

enum class Phase : std::uint8_t {
    starting,          // the first exports are being made
    serving,           //
    handing_over,      // a successor is being started; serving can resume until it is ready
    awaiting_swapoff,  // termination was requested while the machine uses an export: as swap, by
                       // ublk
    draining,          // answers the requests in flight, then ends
};

// The valid transitions. A hand-over that fails or is cancelled ends in `serving`.
constexpr bool may_follow(Phase from, Phase to) {
    using enum Phase;
    switch (from) {
        case starting:
            return to == serving || to == draining;
        case serving:
            return to == handing_over || to == awaiting_swapoff || to == draining;
        case handing_over:
            return to == serving || to == draining;
        case awaiting_swapoff:  // again for other users of an export
            return to == awaiting_swapoff || to == draining;
        case draining:
            return false;
    }
    return false;
}

// The phase of the server and the reason for its end. Only the main thread uses it.
class Lifecycle {
 public:
    Phase phase() const { return phase_; }
    void enter(Phase next) {
        GPUNBD_ASSERT(may_follow(phase_, next), "a server follows its phases and drains once");
        phase_ = next;
    }

    int exit_code = 0;
    std::exception_ptr failure = {};  // of the start
    bool handed_over = false;         // it drains because a successor serves

    bool draining() const { return phase_ == Phase::draining; }
    // No change begins now: another process may serve the contents.
    bool refuses_changes() const { return phase_ == Phase::handing_over || draining(); }
    // The reason for that.
    Outcome refusal() const {
        const bool replaced = phase_ == Phase::handing_over || handed_over;
        return replaced ? outcome_of_replacement() : outcome_of_ending();
    }
    // Termination was requested.
    bool ending() const { return phase_ >= Phase::awaiting_swapoff; }

 private:
    Phase phase_ = Phase::starting;
};

// Checks which exports have `keep: true`.

inline bool any_keeps(const config::ExportList& exports) {
    return std::any_of(exports.begin(), exports.end(), [](const auto& each) { return each.keep; });
}

inline bool all_keep(const config::ExportList& exports) {
    return std::all_of(exports.begin(), exports.end(), [](const auto& each) { return each.keep; });
}

// The state that the supervisor stores. All unset without a descriptor store.
struct KeptState {
    explicit KeptState(Supervision& supervision);

    // Lets the next server create this export, if anything is kept.
    Expected<void> keep(const config::ExportOptions& options) const;
    // Frees the kept contents of a removed export with this name. Call it before the options of a
    // clone or of a restored export are stored: the next server must not take over the old
    // contents.
    void drop_earlier(const std::string& name) const;

    std::optional<KeptCalibration> calibration;
    std::unique_ptr<KeptContents> contents;  // after an upgrade: set by Takeover
    std::unique_ptr<KeptMappings> mappings;
    std::unique_ptr<KeptExports> exports;
    OriginLocks origin_locks;  // of a predecessor, until this server serves
};

// The state that the services of a server share. Members are destroyed in reverse order, after all
// services.
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
    KeptState kept;
    ExportRegistry exports;
    ConnectionSlots slots;  // outlives the connections
    boost::asio::io_context io{1};
    ProgressLog progress{io};
    Lifecycle lifecycle;
};

}  // namespace gpunbd::server
