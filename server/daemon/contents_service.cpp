#include "server/daemon/contents_service.hpp"

#include <spdlog/spdlog.h>

#include <stdexcept>

#include "server/daemon/keep_option.hpp"

namespace gpunbd::server {

ContentsService::ContentsService(ServerContext& context, ExportService& exports)
    : context_(context), exports_(exports), timer_(context.io) {
    exports.add(*this);
}

void ContentsService::open() {
    const RetainedState& retained = context_.retained;
    DeviceRegistry& devices = context_.devices;
    if (retained.contents) {
        retained.contents->open_devices(context_.options.exports, devices);
    }
    if (context_.supervision.start_gate) wait_for_start_gate();
    if (!devices.lacks_mapping() || !retained.mappings) return;
    // The mappings of the earlier server occupy the address space: release them first.
    devices.close();
    retained.mappings->undo_now();
}

void ContentsService::start() {
    if (!context_.supervision.predecessor) settle();
}

void ContentsService::wait_for_start_gate() {
    if (!context_.supervision.start_gate->wait()) {
        throw std::runtime_error("this pre-started server is not needed any more");
    }
    context_.supervision.release_messages();
}

void ContentsService::settle() {
    for (const MadeExports::Refused& each : exports_.refused()) spdlog::error("{}", each.why);
    RetainedState& retained = context_.retained;
    if (retained.calibration) {
        const auto& exports = context_.options.exports;
        if (any_keeps(exports)) retained.calibration->keep(context_.devices.calibration_states());
        // Stored mappings hold the memory of all exports. The next server needs the memory of those
        // that are not kept.
        retained.mappings->keep(all_keep(exports) ? context_.devices.mapping_files()
                                                  : std::vector<const OwnedFd*>{});
    }
    release_unused();
}

void ContentsService::release_unused() {
    RetainedContents* const contents = context_.retained.contents.get();
    if (contents == nullptr) return;
    // Called again when the exports have been made, or when the hand-over has failed.
    if (exports_.busy() || context_.lifecycle.refuses_changes()) return;
    std::vector<RetainedContents::Offered> offered;
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        offered.push_back({each->info.name, each->options.keep, each->volume});
    }
    for (const MadeExports::Refused& each : exports_.refused()) {
        offered.push_back({each.name, true, nullptr});
    }
    const auto next =
        contents->settle(offered, context_.options.keeping.grace, RetainedContents::Clock::now());
    if (!next) return;
    timer_.expires_at(*next);
    timer_.async_wait([this](boost::system::error_code error) {
        if (!error) release_unused();
    });
}

}  // namespace gpunbd::server
