#include "server/daemon/hand_over.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <set>
#include <utility>

#include "config/quote.hpp"
#include "server/base/own_program.hpp"
#include "server/daemon/swap_use.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

HandOver::HandOver(ServerContext& context, const Parts& parts, Actions actions)
    : context_(context), parts_(parts), actions_(std::move(actions)), program_(own_program()) {}

void HandOver::begin() {
    if (context_.lifecycle.ending()) return;
    if (upgrade_) {
        spdlog::info("SIGUSR2: a new server is being started already");
        return;
    }
    if (const std::string reason = obstacle(); !reason.empty()) {
        spdlog::warn("SIGUSR2: nothing can be handed over to another server: {}", reason);
        return;
    }
    spdlog::info("SIGUSR2: starting {} to serve in place of this process", program_);
    const Supervision& supervision = context_.supervision;
    upgrade_ = std::make_shared<Upgrade>(
        Upgrade::Parts{context_.io, parts_.workers.workers(), parts_.listeners.all(),
                       *context_.retained.contents, parts_.ublk, *supervision.socket},
        actions_.yield, [this](const std::string& failure) { finish(failure); });
    context_.lifecycle.enter(Phase::handing_over);
    parts_.reclaim.pause();
    try {
        upgrade_->start({.program = program_,
                         .arguments = own_arguments(),
                         .notify_address = supervision.socket->address(),
                         .capacity = supervision.store->capacity(),
                         .watched = supervision.watchdog_timeout},
                        first_messages());
    } catch (const std::exception& error) {
        upgrade_->give_up();
        finish(error.what());
    }
}

void HandOver::cancel() {
    if (context_.lifecycle.phase() != Phase::handing_over) return;
    GPUNBD_ASSERT(upgrade_ != nullptr, "a server that hands over has an upgrade in progress");
    std::exchange(upgrade_, nullptr)->give_up();
    context_.lifecycle.enter(Phase::serving);
    parts_.reclaim.resume();  // a server that waits for swapoff serves on
}

std::string HandOver::obstacle() const {
    if (context_.command.run) return "a command that --run has started ends with this server";
    if (!context_.retained.contents) {
        return "no supervisor keeps its memory; start it by gpunbd keep, or by systemd with "
               "FileDescriptorStoreMax=";
    }
    if (context_.lifecycle.phase() == Phase::starting || parts_.exports.has_work()) {
        return "its exports are being made; try again later";
    }
    if (parts_.saves.busy() || parts_.exports.restoring())
        return "an export is being saved or restored; try again later";
    if (const ublk::Device* const bound = parts_.ublk.bound_to_this_server()) {
        return fmt::format("{} ends with this server, because export {} does not have keep: true",
                           bound->path(), config::in_quotes(bound->exported().info.name));
    }
    const auto exports = context_.exports.snapshot();
    const auto outlives = [](const auto& each) { return each->contents_outlive_server(); };
    if (std::none_of(exports->begin(), exports->end(), outlives)) {
        return "no export has keep: true";
    }
    if (!swapped_to(*exports).empty() && !std::all_of(exports->begin(), exports->end(), outlives)) {
        return "this machine swaps to it, and not all of its exports have keep: true";
    }
    for (const auto& each : *exports) {
        for (const storage::Device* device : each->volume->devices()) {
            if (!device->exclusive()) continue;
            return fmt::format("{} supports only one server at a time; restart this server",
                               device->info().id);
        }
    }
    return {};
}

std::vector<UpgradeMessage> HandOver::first_messages() const {
    std::vector<UpgradeMessage> messages;
    for (Listeners::Copy& each : parts_.listeners.copies()) {
        messages.push_back({.kind = MessageKind::listener,
                            .body = text_body(each.name),
                            .descriptor = std::move(each.descriptor)});
    }
    std::set<std::string> devices;
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        for (const storage::Device* device : each->volume->devices()) {
            devices.insert(device->info().identity);
        }
    }
    for (const std::string& device : devices) {
        messages.push_back({.kind = MessageKind::device, .body = text_body(device)});
    }
    for (const std::uint32_t id : parts_.ublk.ids()) {
        messages.push_back(
            {.kind = MessageKind::ublk_device, .body = text_body(std::to_string(id))});
    }
    for (auto& [device, found] : context_.devices.calibration_states()) {
        messages.push_back({.kind = MessageKind::calibration,
                            .body = encode_calibration({.device = device, .found = found})});
    }
    for (RetainedExports::Copy& each : context_.retained.exports->copies()) {
        messages.push_back({.kind = MessageKind::run_time_export,
                            .body = text_body(each.name),
                            .descriptor = std::move(each.descriptor)});
    }
    for (RetainedContents::Copy& each : context_.retained.contents->copies()) {
        messages.push_back({.kind = MessageKind::import,
                            .body = encode_import({.name = each.name, .entry = each.entry}),
                            .descriptor = std::move(each.descriptor)});
    }
    return messages;
}

void HandOver::finish(const std::string& failure) {
    if (failure.empty()) return actions_.complete();
    spdlog::error("SIGUSR2: the new server did not start; this server continues: {}", failure);
    context_.lifecycle.enter(Phase::serving);
    // Upgrade calls this function, so it is destroyed later.
    boost::asio::post(context_.io, [this, over = std::exchange(upgrade_, nullptr)] {
        if (context_.lifecycle.phase() == Phase::serving) actions_.resume();
    });
}

}  // namespace gpunbd::server
